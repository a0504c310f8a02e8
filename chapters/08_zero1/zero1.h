// ZeRO stage 1: every rank has the states of its share of the parameters, and no others
// (Rajbhandari et al., "ZeRO", arXiv 1910.02054).
//
// An all-reduce is a reduce-scatter and an all-gather. Between the two a rank needs only its chunk
// of the gradient, if it updates only its chunk of the weights:
//
//   07   all-reduce of gradients                           every rank updates all
//   08   reduce-scatter of gradients | update of 1 / N | all-gather of weights
//
// The same bytes travel. What an optimizer keeps, and the FP32 master of 16-bit weights, shrinks
// to 1 / N.
//
// Each section (embedding, a block, the head) is cut into N equal chunks, so that it can travel by
// itself: that is a message. The padding that makes them equal costs 64 N - 1 elements at most.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chapters/02_adamw/optimizer.h"
#include "chapters/04_clipping/clip.h"
#include "chapters/05_mixed_precision/precision.h"
#include "chapters/07_ddp/ddp.h"
#include "common/comm/chunks.h"
#include "common/error.h"
#include "common/model/layout.h"
#include "common/run/background.h"
#include "kernels/limbs.h"

namespace ladder {

/// @throws UserError if an option looks at whole rows or columns, where ranks hold chunks
inline void check_sharding(const OptimizerOptions& optimizer, const ClipOptions& clip,
                           const GptConfig& gpt, int64_t ranks) {
  if (ranks == 1) return;
  if (optimizer.name == "adafactor")
    throw UserError(
        "--optimizer adafactor has means over whole rows and columns, and {} ranks hold chunks of "
        "them; legal are sgd, adam, adamw, lion, adamw8bit",
        ranks);
  if (clip.agc > 0 && gpt.channels % kNormLeaf != 0)
    throw UserError(
        "--agc sums {} neighbors of a row at once, so with {} ranks --channels must "
        "be a multiple of {}, not {}",
        kNormLeaf, ranks, kNormLeaf, gpt.channels);
}

/// As Weights (chapter 05), but a rank has the master of its own chunks alone.
struct ShardedWeights {
  Tensor master;   ///< F32 (shard.size()); in FP32 the same as compute
  Tensor compute;  ///< PrecisionOptions::dtype() (layout.size())
  bool round_master;

  ShardedWeights(Arena& arena, const ParamLayout& layout, const ParamLayout& shard,
                 const PrecisionOptions& options)
      : compute(arena.alloc(Mem::Param, "params", options.dtype(), {layout.size()})),
        round_master(options.master_bits == 16) {
    master =
        options.narrow() ? arena.alloc(Mem::Master, "master", Dtype::F32, {shard.size()}) : compute;
  }

  /// After a change of the master: rounds it into this rank's chunks of compute.
  void refresh(const Ctx& ctx, const ParamLayout& shard) const {
    if (compute.ptr == master.ptr) return;
    for (int64_t s = 0; s < shard.sections(); ++s) {
      const Tensor from = shard.section_of(master, s), to = shard.section_of(compute, s);
      ctx.kernels->cast(ctx, to, from);
      if (round_master) ctx.kernels->cast(ctx, from, to);
    }
  }
};

/// Moves chunks: those of gradients to their ranks, those of weights to all.
class Zero1 {
 public:
  /// @param ctx of the rank's own thread
  Zero1(Arena& arena, const Ctx& ctx, Comm& comm, const ParamLayout& layout, const RunOptions& run,
        const DdpOptions& options)
      : layout_(&layout),
        bucket_(options.bucket_mb * (1 << 20) / 4),
        next_(layout.sections()),
        background_(arena, ctx, comm, run, reduction_of(options.reduction),
                    layout.largest_section(), options.mode == "overlapped" && comm.size() > 1) {}

  /// Bytes of Comm: what arrives, in pieces.
  static int64_t bytes(const ParamLayout& layout, int ranks) {
    return Background::bytes(ranks, layout.largest_section());
  }

  /// Backward has left section s of `grads` for good. F32 (layout.size())
  void ready(Tensor grads, int64_t s) {
    const int64_t waiting = layout_->section(next_ - 1).end - layout_->section(s).begin;
    if (background_.is_beside() && static_cast<double>(waiting) >= bucket_) start(grads, s);
  }

  /// Returns once this rank's chunks of `grads` are sums over ranks. The others are used up.
  void finish(const Ctx& ctx, Tensor grads) {
    const Span span(ctx, "wait_for_gradients");
    start(grads, 0);
    wait();
    next_ = layout_->sections();
  }

  /// This rank's chunks of `params` are new: all ranks get them. Any dtype (layout.size())
  void gather(const Ctx& ctx, Tensor params) {
    const Span span(ctx, "wait_for_params");
    for (const Tensor section : layout_->sections_of(params))
      pending_.push_back(background_.run([section](const Ctx& own, Reducer& reducer) {
        const Span inner(own, "all_gather");
        reducer.all_gather(section, Chunks{section.size(), reducer.comm().size(), kAlign});
      }));
    wait();
  }

  void show(RunLog& log) { background_.show(log); }
  /// Bytes that this rank has sent so far.
  int64_t wire_bytes() const { return background_.wire_bytes(); }

 private:
  /// Reduces sections from the last that has not been started down to s.
  void start(Tensor grads, int64_t s) {
    while (next_ > s) {
      const Tensor section = layout_->section_of(grads, --next_);
      pending_.push_back(background_.run([section](const Ctx& ctx, Reducer& reducer) {
        const Span span(ctx, "reduce_scatter");
        reducer.reduce_scatter(section, Chunks{section.size(), reducer.comm().size(), kAlign});
      }));
    }
  }
  void wait() {
    for (Pending& pending : pending_) pending.wait();
    pending_.clear();
  }

  const ParamLayout* layout_;
  double bucket_;  ///< elements that are worth a start
  int64_t next_;   ///< sections from here on are under way
  std::vector<Pending> pending_;
  Background background_;  ///< last: its thread uses all of the above
};

/// Bytes that one rank sends in a step: a reduce-scatter of F32 gradients and an all-gather of
/// weights as forward reads them. Of the reductions that load all ranks alike.
inline std::optional<int64_t> zero1_traffic(const ParamLayout& layout, const DdpOptions& options,
                                            const PrecisionOptions& precision) {
  if (!options.is_even()) return std::nullopt;
  const int64_t others = layout.size() / layout.shards() * (layout.shards() - 1);
  return others * (4 + size_of(precision.dtype()));
}

}  // namespace ladder
