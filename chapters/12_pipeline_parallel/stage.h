// One stage of the pipeline: its part of the model, its place for each micro-batch in flight, and
// its messages to the stages before and after.
//
// A micro-batch goes forward through a part, and only later comes its gradient; others are under
// way in between. So activations lie in slots, one for each micro-batch in flight:
//
//   F0 F1 F2 B0 F3 B1 ...      slot 0: F0 .. B0, then F3 ..     slot 1: F1 .. B1     slot 2: F2 ..
//
// What --recompute drops is shared by all slots. Backward computes it again, also in the last run
// of blocks, because other micro-batches have been here since; and where weight gradients come
// apart (zb-h1), it computes it again for these.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chapters/02_adamw/optimizer.h"
#include "chapters/05_mixed_precision/precision.h"
#include "chapters/12_pipeline_parallel/part_grads.h"
#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/12_pipeline_parallel/pipeline_check.h"
#include "common/comm/comm.h"
#include "common/error.h"
#include "common/model/activations.h"
#include "common/model/layout.h"
#include "common/run/command_line.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

struct PipelineOptions {
  int pp = 0;
  std::string schedule = "1f1b";
  int chunks = 2;

  void add_to(CommandLine& line) {
    line.group("12_pipeline_parallel");
    line.add("--pp", pp, "stages that share the layers; 0: all ranks");
    line.add("--pipeline", schedule, "gpipe, 1f1b, interleaved or zb-h1",
             {.legal = {kPipelines.begin(), kPipelines.end()}});
    line.add("--chunks", chunks, "parts of the model on a stage, for interleaved");
  }

  /// Ranks to start if --ranks says 1.
  int ranks(int given) const { return given == 1 ? std::max(1, pp) : given; }
  bool interleaved(int64_t stages) const { return schedule == "interleaved" && stages > 1; }
  /// Weight gradients apart from those of inputs.
  bool splits() const { return schedule == "zb-h1"; }

  /// What rank `rank` of `stages` has of the layers.
  /// @throws UserError if they cannot be shared so, naming what is legal
  StageRank stage(const GptConfig& gpt, int64_t rank, int64_t stages) const {
    if (chunks < 1) throw UserError("--chunks must be at least 1, not {}", chunks);
    const int64_t each = interleaved(stages) ? chunks : 1;
    std::vector<int64_t> legal;
    for (int64_t p = 1; p * (p > 1 ? each : 1) <= gpt.layers; ++p)
      if (gpt.layers % (p * (p > 1 ? each : 1)) == 0) legal.push_back(p);
    if (std::find(legal.begin(), legal.end(), stages) == legal.end())
      throw UserError("--pp {} with {} chunks each does not divide {} layers; legal are {}", stages,
                      each, gpt.layers, fmt::join(legal, ", "));
    return {rank, stages, each};
  }

  /// The schedule of a step of `micros` micro-batches, checked.
  /// @throws UserError as make_pipeline()
  Pipeline pipeline(int64_t stages, int64_t micros) const {
    Pipeline all = make_pipeline(schedule, stages, chunks, micros);
    ladder::check(all);
    return all;
  }

  /// @throws UserError if an option looks at what stages have apart
  static void check(const OptimizerOptions& optimizer, const PrecisionOptions& precision,
                    bool noise_scale, int64_t stages, int64_t slots) {
    if (stages > 1 && optimizer.name == "adafactor")
      throw UserError(
          "--optimizer adafactor has states of each tensor's own shape, and a checkpoint does not "
          "collect them from {} stages; legal are sgd, adam, adamw, lion, adamw8bit",
          stages);
    if (precision.fp8() && (stages > 1 || slots > 1))
      throw UserError(
          "--precision fp8 keeps codes of one micro-batch on one rank; legal with more are fp32, "
          "bf16, fp16");
    if (stages > 1 && noise_scale)
      throw UserError(
          "--noise-scale looks at the gradient of one micro-batch of the whole model, which {} "
          "stages never have at one time; legal is one stage",
          stages);
  }
};

/// The model with the blocks of one part alone.
inline GptConfig part_of(GptConfig gpt, const StageRank& stage) {
  gpt.layers = stage.blocks(gpt.layers, 0).size();
  return gpt;
}

/// A micro-batch in one part of the model.
struct Flight {
  size_t first_block;  ///< of the part, in the model
  bool embed, head;    ///< whether the part has them
  size_t slot;
  Activations acts;
  PartGrads grads;
  Tensor tokens, targets;  ///< (n,T)
  Tensor losses;           ///< (n)
};

/// Which slot a micro-batch has while it is in flight.
class Slots {
 public:
  explicit Slots(int64_t count) : of_(static_cast<size_t>(count)) {}

  /// The slot of the action's micro-batch and chunk: a free one if it has none yet.
  size_t of(const Action& a) {
    const auto have = std::find(of_.begin(), of_.end(), key(a));
    if (have != of_.end()) return static_cast<size_t>(have - of_.begin());
    const auto free = std::find(of_.begin(), of_.end(), std::nullopt);
    CHECK(free != of_.end(), "no slot of {} is free for {}", of_.size(), to_string(a));
    *free = key(a);
    const auto used = std::ssize(of_) - std::count(of_.begin(), of_.end(), std::nullopt);
    most_ = std::max(most_, used);
    return static_cast<size_t>(free - of_.begin());
  }
  void release(const Action& a) { of_[of(a)].reset(); }

  /// The most that were in flight.
  int64_t most() const { return most_; }

 private:
  using Key = std::optional<std::array<int64_t, 2>>;
  static Key key(const Action& a) { return std::array{a.micro, a.chunk}; }

  std::vector<Key> of_;
  int64_t most_ = 0;
};

/// Messages of one kind between neighboring stages: to the next in `step` +1, to the one before in
/// -1, counted round.
class Mailbox {
 public:
  /// @param stages the ranks of the pipeline, by stage
  /// @param like   a message has its dtype and its shape, or fewer sequences
  Mailbox(Arena& arena, const Ctx& ctx, Comm& stages, int step, const Tensor& like)
      : ctx_(ctx), group_(stages.split(0, stages.rank())), step_(step) {
    if (stages.size() == 1) return;
    for (Tensor& buffer : buffers_)
      buffer = arena.alloc(Mem::Comm, "mailbox", like.dtype, like.shape);
  }

  /// Bytes of Comm, of messages of `elements`.
  static int64_t bytes(int64_t stages, Dtype dtype, int64_t elements) {
    return stages == 1 ? 0 : kMailbox * elements * size_of(dtype);
  }

  /// Returns once x may change: it waits in a buffer until the other stage receives it.
  void send(Tensor x) {
    const size_t i = next_++ % kMailbox;
    pending_[i].wait();
    const Tensor out = buffers_[i].first(x.dim(0));
    ctx_.kernels->cast(ctx_, out, x);
    pending_[i] = group_->isend(out, neighbor(step_));
  }
  void recv(Tensor x) { group_->recv(x, neighbor(-step_)); }
  /// Returns once all has been received.
  void finish() {
    for (Pending& pending : pending_) pending.wait();
  }

  const Comm& group() const { return *group_; }
  /// Bytes that this rank has sent.
  int64_t wire_bytes() const { return group_->statistics().wire_bytes(); }

 private:
  int neighbor(int step) const { return (group_->rank() + step + group_->size()) % group_->size(); }

  const Ctx& ctx_;
  std::unique_ptr<Comm> group_;
  int step_;
  std::array<Tensor, kMailbox> buffers_;
  std::array<Pending, kMailbox> pending_;
  size_t next_ = 0;
};

/// Bytes that stage `stage` sends in a step: each part but the last its output, each but the first
/// the gradient of its input, for all `sequences`.
inline int64_t pipeline_traffic(const GptConfig& gpt, Dtype dtype, const StageRank& stage,
                                int64_t sequences) {
  int64_t messages = 0;
  for (int64_t c = 0; c < stage.chunks; ++c) {
    const int64_t g = c * stage.size + stage.rank;
    messages += (g + 1 < stage.parts() ? 1 : 0) + (g > 0 ? 1 : 0);
  }
  return messages * sequences * gpt.seq_len * gpt.channels * size_of(dtype);
}

/// The most micro-batches whose weight gradients wait on a stage.
inline int64_t most_waiting(const Pipeline& pipeline, int64_t stage) {
  int64_t now = 0, most = 0;
  for (const Action& a : pipeline.lists[static_cast<size_t>(stage)]) {
    now += a.what == Do::BackwardInput;
    most = std::max(most, now);
    now -= a.what == Do::BackwardWeight;
  }
  return most;
}

}  // namespace ladder
