// ZeRO stage 1: every rank has the optimizer states of its share of the parameters, and no others
// (Rajbhandari et al., "ZeRO", arXiv 1910.02054).
//
// An all-reduce is a reduce-scatter and an all-gather. A rank that updates only its chunk of the
// weights needs only its chunk of the gradient, so the update can come between the two:
//
//   07   all-reduce of gradients                           every rank updates all
//   08   reduce-scatter of gradients | update of 1 / N | all-gather of weights
//
// In FP32 as many bytes travel. The optimizer states, and the FP32 master of 16-bit weights, shrink
// to 1 / N.
//
// Each section (embedding, a block, the head) is cut into N equal chunks, so each section can
// travel by itself. The padding that makes its chunks equal takes at most 64 (N - 1) elements of
// each section.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "chapters/05_mixed_precision/precision.h"
#include "chapters/07_ddp/ddp.h"
#include "common/comm/chunks.h"
#include "common/model/layout.h"
#include "common/run/comm_stream.h"

namespace ladder {

/// Like Weights (chapter 05), but a rank has only its own chunks of the master:
///
///              compute         master
///     fp32     F32, whole      the same buffer; after an update only this rank's chunks are new
///     bf16     BF16, whole     F32, a Shard: this rank's chunks and no others
struct ShardedWeights {
  Tensor compute;     ///< PrecisionOptions::dtype() (layout.size())
  Flat master;        ///< F32
  bool round_master;  ///< --master 16 (chapter 05): the master keeps only the bits of compute

  ShardedWeights(Arena& arena, const ParamLayout& layout, const ParamLayout& shard,
                 const PrecisionOptions& options)
      : compute(arena.alloc(Mem::Param, "params", options.dtype(), {layout.size()})),
        master(compute),
        round_master(options.master_bits == 16) {
    if (options.narrow())
      master = Shard(arena.alloc(Mem::Master, "master", Dtype::F32, {shard.size()}));
  }

  /// Call it after the master has changed. Rounds the master into this rank's chunks of compute.
  void refresh(const Ctx& ctx, const ParamLayout& shard) const {
    if (!master.is_shard) return;  // FP32: the master is compute
    for (int64_t s = 0; s < shard.sections(); ++s) {
      const Tensor from = shard.section_of(master, s), to = shard.section_of(compute, s);
      if (from.size() == 0) continue;
      ctx.kernels->cast(ctx, to, from);
      if (round_master) ctx.kernels->cast(ctx, from, to);
    }
  }
};

/// The equal chunks of a section. Each rank has one.
inline Chunks chunks_of(const Tensor& section, const Collectives& collectives) {
  return {section.size(), collectives.comm().size(), kAlign};
}

/// Sums gradients over all ranks, so that each rank has the sum of its own chunks.
class Zero1 {
 public:
  Zero1(CommStream& comm_stream, const ParamLayout& layout, const DdpOptions& options)
      : comm_stream_(comm_stream),
        layout_(layout.grads()),
        bucket_(options.bucket_mb * (1 << 20) / 4),
        next_(layout.sections()) {}

  /// Call it when the gradients of section s are complete. If the communication stream has a
  /// thread, and at least --bucket-mb of gradients wait, this starts to reduce them:
  ///
  ///   | 0 | 1 | ... | s | ... | next_ - 1 | next_ | ... |
  ///     not complete   waiting: s on        started
  ///
  /// grads F32 (layout.grads().size())
  void section_done(Tensor grads, int64_t s) {
    const int64_t waiting = layout_.section(next_ - 1).end - layout_.section(s).begin;
    if (comm_stream_.has_thread() && static_cast<double>(waiting) >= bucket_) start(grads, s);
  }

  /// Returns when this rank's chunks of `grads` are sums over ranks. The other chunks then hold
  /// parts of sums, which nobody may use. (GradTree::finish adds the two gradients of a tied head
  /// over the whole buffer. Chunk r of both belongs to rank r, so its own chunks are right.)
  void wait(const Ctx& ctx, Tensor grads) {
    const Span span(ctx, "wait_for_gradients");
    start(grads, 0);
    for (Pending& pending : pending_) pending.wait();
    pending_.clear();
    next_ = layout_.sections();
  }

 private:
  /// Starts to reduce sections, from the last one that is not started down to s.
  void start(Tensor grads, int64_t s) {
    while (next_ > s) {
      const Tensor section = layout_.section_of(grads, --next_);
      if (section.size() == 0) continue;
      pending_.push_back(comm_stream_.run([section](const Ctx& ctx, Collectives& collectives) {
        const Span span(ctx, "reduce_scatter");
        collectives.reduce_scatter(section, chunks_of(section, collectives));
      }));
    }
  }

  CommStream& comm_stream_;
  ParamLayout layout_;
  double bucket_;  ///< how many elements must wait before a reduction starts
  int64_t next_;   ///< sections from here on have been started
  std::vector<Pending> pending_;
};

/// Every rank has new values in its chunks of `params`. Gives all chunks to all ranks. Any dtype
/// (layout.size())
inline void all_gather(const Ctx& ctx, CommStream& comm_stream, const ParamLayout& layout,
                       Tensor params) {
  const Span span(ctx, "wait_for_params");
  std::vector<Pending> all;
  for (const Tensor& section : layout.sections_of(params))
    all.push_back(comm_stream.run([section](const Ctx& own, Collectives& collectives) {
      const Span inner(own, "all_gather");
      collectives.all_gather(section, chunks_of(section, collectives));
    }));
  for (Pending& pending : all) pending.wait();
}

/// Bytes that one rank sends in a step: a reduce-scatter of F32 gradients, and an all-gather of
/// weights in the dtype that forward reads. The formula holds for reductions in which all ranks
/// send equally many bytes.
inline std::optional<int64_t> zero1_traffic(const ParamLayout& layout, const DdpOptions& options,
                                            const PrecisionOptions& precision) {
  if (!options.sends_equally()) return std::nullopt;
  const int64_t bytes = 4 * layout.grads().size() + size_of(precision.dtype()) * layout.size();
  return bytes / layout.shards() * (layout.shards() - 1);
}

}  // namespace ladder
