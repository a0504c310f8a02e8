// Expert parallelism: ranks split the experts of every block (arXiv 2006.16668). Here are the
// options, which rank has which experts, and over which ranks gradients are summed.
//
//   rank      0    1    2    3  |  4    5    6    7      8 ranks, --ep 4, 8 experts
//   experts   0 1  2 3  4 5  6 7 |  0 1  2 3  4 5  6 7
//   group     -------- 0 ------- | -------- 1 -------    tokens travel inside a group
//
// Ranks 0 and 4 have the same experts: they are copies. A rank has E / ep experts, and every rank
// has all of the rest: router, attention, norms, embedding, head. As in chapter 09 gradients and
// states are sharded: those of the rest over all N ranks, those of experts over their N / ep
// copies.
//
// The bits are those of one rank, for four reasons:
//   - On the way to an expert a row is copied, and nothing else.
//   - The outputs of a token's experts are added as a tree over experts, of which a rank's sum is a
//     whole subtree, in FP32. The token's origin joins the subtrees, and rounds once.
//   - In micro-step i the ranks of group g have the sequences from (i N + g ep) MBS on, one rank
//     behind the other. So an owner gets tokens of ep MBS neighboring sequences, in order, and its
//     sum for the gradient of an expert is a subtree of the tree over sequences. Copies, one in
//     each group, are the next levels of that tree, and micro-steps the last.
//   - Loads are integers, which add without rounding. Capacities and balance losses belong to
//     single sequences, and a rank has whole sequences.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "chapters/05_mixed_precision/precision.h"
#include "chapters/07_ddp/ddp.h"
#include "chapters/08_zero1/zero1.h"
#include "chapters/09_zero2/zero2.h"
#include "chapters/21_moe/experts.h"
#include "common/comm/comm.h"
#include "common/error.h"
#include "common/model/config.h"
#include "common/model/layout.h"
#include "common/run/comm_stream.h"
#include "common/run/command_line.h"
#include "common/run/log.h"
#include "common/run/options.h"

namespace ladder {

struct ExpertParallelOptions {
  int ep = 1;

  void add_to(CommandLine& line) {
    line.group("22_expert_parallel");
    line.add("--ep", ep, "ranks that split the experts of a block: 1, 2, 4 or 8");
  }

  /// Checks what can be checked before a rank starts. place() knows the model and checks more.
  void check() const {
    if (ep < 1 || ep > kMost || !is_power(ep)) throw UserError("--ep {}: legal are 1, 2, 4, 8", ep);
  }

  /// Which experts a rank has; nothing for a model without experts.
  /// @throws UserError if ranks cannot split them in this way, naming what is legal
  std::optional<ExpertRank> place(const GptConfig& gpt, int ranks, int rank) const {
    const int64_t E = gpt.experts.count;
    if (E == 0 && ep > 1)
      throw UserError(
          "--ep {}: --model {} has no experts; legal is --ep 1, or a model that has some", ep,
          gpt.name);
    // One rank has the whole tree over experts, whatever E is. Else a rank must have a subtree.
    const auto cuts = [&](int64_t n) { return n == 1 || (E % n == 0 && is_power(E / n)); };
    if (!cuts(ep))
      throw UserError(
          "--ep {}: it must leave 1, 2, 4, 8, ... experts to a rank, of {} in all; legal are {}",
          ep, E, legal_degrees(kMost, cuts));
    if (ranks % ep != 0)
      throw UserError("--ep {} with {} ranks; legal are multiples of {} ranks, or --ep {}", ep,
                      ranks, ep,
                      legal_degrees(kMost, [&](int64_t n) { return cuts(n) && ranks % n == 0; }));
    if (E == 0) return {};
    return ExpertRank{rank % ep, ep};
  }

 private:
  static constexpr int kMost = 8;

  static bool is_power(int64_t n) { return std::has_single_bit(static_cast<uint64_t>(n)); }
};

/// The communication streams that sum gradients and gather weights: for sections of experts over
/// the copies, for other sections over all ranks.
class ExpertStreams {
 public:
  ExpertStreams(Arena& arena, const Ctx& ctx, Comm& world, int ep, const RunOptions& run,
                const DdpOptions& options, const ParamLayout& layout)
      : layout_(layout),
        // Every ep-th rank. (Tokens travel among neighbors, the ranks of one rank() / ep.)
        copy_ranks_(world.split(world.rank() % ep, world.rank())),
        all_(open_comm_stream(arena, ctx, world, run, options, layout.largest_section())),
        copies_(
            open_comm_stream(arena, ctx, *copy_ranks_, run, options, layout.largest_section())) {}

  /// Bytes of Comm that the two streams take.
  static int64_t bytes(const ParamLayout& layout, int ranks, int ep) {
    return CommStream::bytes(ranks, layout.largest_section()) +
           CommStream::bytes(ranks / ep, layout.largest_section());
  }

  /// The stream of section s.
  CommStream& of(int64_t s) { return layout_.is_of_experts(s) ? copies_ : all_; }

  /// Does what all_gather() of chapter 08 does, with each section on its own stream.
  void all_gather(const Ctx& ctx, Tensor params) {
    const Span span(ctx, "wait_for_params");
    std::vector<Pending> all;
    for (int64_t s = 0; s < layout_.sections(); ++s) {
      const Tensor section = layout_.section_of(params, s);
      if (section.size() == 0) continue;
      all.push_back(of(s).run([section](const Ctx& own, Collectives& collectives) {
        const Span inner(own, "all_gather");
        collectives.all_gather(section, chunks_of(section, collectives));
      }));
    }
    for (Pending& pending : all) pending.wait();
  }

  void show(Log& log) {
    for (CommStream* stream : {&all_, &copies_}) stream->show(log);
  }

  void report(Log& log, const DdpOptions& options, const PrecisionOptions& precision,
              int64_t GA) const {
    std::optional<int64_t> predicted = zero2_traffic(layout_, options, precision, GA);
    if (log.last_step_skipped()) predicted.reset();
    log.traffic(predicted, log.sent_in_step(all_.group()) + log.sent_in_step(copies_.group()));
  }

 private:
  const ParamLayout& layout_;
  std::unique_ptr<Comm> copy_ranks_;  ///< ranks with the same experts: every ep-th one
  CommStream all_, copies_;
};

/// The sharded gradients of chapter 09, each section summed on its stream. The base class gets
/// the stream of section 0, the embedding; where it sums a section, it calls stream_of().
class ExpertGrads : public ShardedGrads {
 public:
  ExpertGrads(Arena& arena, ExpertStreams& streams, const ParamLayout& layout,
              const ParamLayout& shard, const AccumulateOptions& options, int64_t steps)
      : ShardedGrads(arena, streams.of(0), layout, shard, options, steps), streams_(streams) {}

 protected:
  CommStream& stream_of(int64_t s) override { return streams_.of(s); }

 private:
  ExpertStreams& streams_;
};

/// After the last micro-batch: gets what the routers of the other ranks have counted. All ranks
/// call it. Both tensors of a block are for the whole batch: a load for each sequence, losses for
/// each micro-batch. The N ranks fill N neighboring micro-batches in a micro-step, so N of them are
/// gathered at a time.
inline void gather_loads(Comm& world, const Routers& routers, const GptConfig& gpt) {
  for (int64_t l = 0; l < gpt.layers && gpt.experts.count > 0; ++l)
    for (const Tensor& x : {routers.load(l), routers.losses(l)}) {
      const int64_t micros = routers.losses(l).dim(0);
      const int64_t each = x.dim(0) / micros;  // rows of a micro-batch: MBS loads, or 1 of losses
      for (int64_t k = 0; k < micros; k += world.size())
        world.all_gather(x.slice(k * each, world.size() * each),
                         x.slice((k + world.rank()) * each, each));
    }
}

}  // namespace ladder
