// --plant KIND:STEP: a fault on purpose, to see which detector notices it, and when.
//
//   shuffle:S     from batch S on targets change places within their sequence
//   rate:S        from step S on the learning rate is ten times as high
//   freeze:S      from step S on the gradient of the last block is 0. The optimizer's moments and
//                 weight decay still move the block
//   rank:S        from step S on the gradient of the last rank is ten times as large
//
// (A bad batch is --bad-batch of chapter 14.)
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "common/data/text.h"
#include "common/error.h"
#include "common/model/layout.h"
#include "common/names.h"
#include "common/number_in.h"
#include "common/random.h"
#include "common/run/command_line.h"
#include "kernels/context.h"
#include "kernels/transfer.h"

namespace ladder {

enum class Planted : uint8_t { None, Shuffle, Rate, Freeze, Rank };
constexpr auto names_of(Planted) { return std::array{"none", "shuffle", "rate", "freeze", "rank"}; }

struct PlantOptions {
  std::string text;
  Planted kind = Planted::None;
  int64_t step = 0;

  void add_to(CommandLine& line) {
    line.group("29_monitor");
    line.add("--plant", text,
             "an experiment: KIND:STEP, a fault from then on; shuffle (targets), rate (ten times), "
             "freeze (no gradient in the last block), rank (the last one's gradient ten times)");
  }
  /// Reads the text. @throws UserError
  void check() {
    if (text.empty()) return;
    const auto [name, number] = around_colon(text);
    kind = named<Planted>(name).value_or(Planted::None);
    step = number_in<int64_t>(number).value_or(-1);
    if (kind == Planted::None || step < 0)
      throw UserError("--plant {}; legal are shuffle, rate, freeze or rank, a colon, and a step",
                      text);
  }

  bool is(Planted what, int64_t now) const { return kind == what && now >= step; }

  /// Shuffles the targets of batch `number` within each sequence. The order depends on seed, batch
  /// and sequence alone.
  /// @param first index of the first sequence here in the batch of all ranks
  void shuffle(const Batch& batch, uint64_t seed, int64_t number, int64_t first) const {
    if (!is(Planted::Shuffle, number)) return;
    const Random random(seed, "planted");
    const int64_t T = batch.targets.dim(1);
    for (int64_t b = 0; b < batch.targets.dim(0); ++b) {
      int32_t* const row = batch.targets.data<int32_t>() + b * T;
      for (int64_t t = T - 1; t > 0; --t)
        std::swap(row[t], row[random.below(static_cast<uint64_t>(t) + 1,
                                           static_cast<uint64_t>((first + b) * T + t),
                                           static_cast<uint64_t>(number))]);
    }
  }
  float rate(int64_t now) const { return is(Planted::Rate, now) ? 10.0f : 1.0f; }
  /// What backward multiplies this rank's loss by: 10 on the last rank with `rank`, else 1.
  float loss_factor(int64_t now, int64_t rank, int64_t ranks) const {
    return is(Planted::Rank, now) && rank == ranks - 1 ? 10.0f : 1.0f;
  }
  /// Sets the last block's gradient to 0 in `grads`, this rank's shard of all gradients.
  void freeze(const Ctx& ctx, const ParamLayout& shard, const Flat& grads, int64_t now) const {
    if (is(Planted::Freeze, now))
      zero(ctx, shard.section_of(grads, shard.block_section(shard.config().layers - 1)));
  }
};

}  // namespace ladder
