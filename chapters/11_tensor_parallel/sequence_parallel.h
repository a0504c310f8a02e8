// Sequence parallelism: ranks that split each layer also split what lies between the layers
// (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
// arXiv 2205.05198).
//
// Norms and residuals treat each token by itself. So between the shared parts, rank r of t has only
// its own positions of every sequence, [r T/t, (r+1) T/t). A shared part needs all positions, so
// they are gathered before it. After it, a rank takes its own positions of the sum:
//
//            forward           backward
//      f     all-gather        reduce-scatter
//      g     reduce-scatter    all-gather
//
// An all-reduce is a reduce-scatter and an all-gather, so these send as many bytes as the
// all-reduces without sequence parallelism. But backward gathers some tensors a second time, and
// those bytes come on top. The paper calls this f g, and this g g-bar.
#pragma once

#include <cstdint>

#include "common/comm/elements.h"
#include "common/comm/reduction.h"
#include "common/model/config.h"
#include "common/model/parts.h"
#include "kernels/arena.h"

namespace ladder {

/// How many gradients a norm has: of its gain, and of its bias if it has one.
inline int64_t norm_gradients(const GptConfig& gpt) { return gpt.norm == Norm::Layer ? 2 : 1; }

/// How ranks exchange the tokens of sequences, and gradients of which each rank has a part.
class SequenceParallel {
 public:
  /// @param group the ranks that split each sequence, in the order of its positions
  /// @param micro the most sequences of a micro-batch
  SequenceParallel(Arena& arena, const Ctx& ctx, Comm& group, const GptConfig& gpt, Dtype dtype,
                   int64_t micro)
      : ranks_(group.size()),
        rank_(group.rank()),
        tokens_(group, ctx, Reduction::Halving, arena, dtype, gpt.seq_len * gpt.channels) {
    const Shape whole{micro, gpt.seq_len, gpt.channels};
    summand_ = arena.alloc(Mem::Workspace, "summand", dtype, whole);
    inp_ = arena.alloc(Mem::Workspace, "gathered.inp", dtype, whole);
    dproduct_ = arena.alloc(Mem::Workspace, "gathered.dproduct", dtype, whole);
    chunks_ = arena.alloc(Mem::Workspace, "chunks", Dtype::F32,
                          {norm_gradients(gpt) * micro, kTokenChunks, gpt.channels});
  }

  /// Adds what the constructor allocates to a prediction.
  static void add_bytes(MemoryBytes& bytes, const GptConfig& gpt, Dtype dtype, int ranks,
                        int64_t micro) {
    const int64_t sequence = gpt.seq_len * gpt.channels;
    const int64_t chunks = norm_gradients(gpt) * micro * kTokenChunks * gpt.channels;
    bytes[Mem::Workspace] += 3 * size_of(dtype) * micro * sequence + 4 * chunks;
    bytes[Mem::Comm] += size_of(dtype) * Collectives::workspace_elements(ranks, sequence);
  }

  /// This rank's summand for all positions (MBS,T,C).
  Tensor summand() const { return summand_; }
  /// own (n,T/t,C) = own positions of the sum of summand() over ranks. summand() then holds parts
  /// of sums.
  void reduce_scatter(const Ctx& ctx, Tensor own) {
    const Span span(ctx, "reduce_scatter");
    for (int64_t b = 0; b < own.dim(0); ++b) {
      const Tensor whole = sequence(summand_, b);
      tokens_.reduce_scatter(whole, by_rank(whole));
      copy_elements(sequence(own, b), by_rank(whole).of(whole, rank_), ctx.device);
    }
  }

  /// The input of a shared part for all positions, (n,T,C), gathered from own (n,T/t,C). It is
  /// valid until the next call.
  Tensor gather_inp(const Ctx& ctx, Tensor own) { return gather(ctx, inp_, own); }
  /// The gradient of a shared part's product, gathered in the same way.
  Tensor gather_dproduct(const Ctx& ctx, Tensor own) { return gather(ctx, dproduct_, own); }

  /// Gradients of a norm. A rank's tokens are neighbors: kTokenChunks / t whole chunks of each
  /// sequence (kernels/token_leaves.h). But a sum over a sequence folds an early chunk with a late
  /// one. So ranks gather the sums of all chunks, and each rank joins them. dout, inp (n,T/t,C)
  void norm_backward_weight(const Ctx& ctx, const Affine& grads, Tensor dout, Tensor inp,
                            const NormSaved& saved, Into into) {
    const int64_t n = dout.dim(0);
    const Tensor sums = chunks_.first(grads.b ? 2 * n : n), dw = sums.first(n);
    const Tensor db = grads.b ? sums.slice(n, n) : Tensor{};
    for (int64_t b = 0; b < n; ++b) sum_chunks(ctx, dw, db, b, dout, inp, saved);
    for (int64_t i = 0; i < sums.dim(0); ++i) {
      const Tensor whole = sequence(sums, i);
      tokens_.all_gather(whole, by_rank(whole));
    }
    // From here on, a chunk's sum is treated like a token.
    bias_backward_weight(ctx, grads.w, dw, into);
    bias_backward_weight(ctx, grads.b, db, into);
  }

 private:
  Tensor gather(const Ctx& ctx, Tensor buffer, Tensor own) {
    const Span span(ctx, "all_gather");
    for (int64_t b = 0; b < own.dim(0); ++b) {
      const Tensor whole = sequence(buffer, b);
      copy_elements(by_rank(whole).of(whole, rank_), sequence(own, b), ctx.device);
      tokens_.all_gather(whole, by_rank(whole));
    }
    return buffer.first(own.dim(0));
  }

  /// Writes the sums of this rank's chunks of sequence b to their rows of dw and db
  /// (n,kTokenChunks,C).
  void sum_chunks(const Ctx& ctx, Tensor dw, Tensor db, int64_t b, Tensor dout, Tensor inp,
                  const NormSaved& saved) const {
    Ctx alone = ctx;
    alone.token_chunks = 1;
    const int64_t own = kTokenChunks / ranks_, T = dout.dim(1), C = dout.dim(2);
    for (int64_t i = 0; i < own; ++i) {
      const Range t = leaf(i, own, T);
      const auto to = [&](const Tensor& sums) {
        if (!sums) return Tensor{};
        return sequence(sums, b).view({kTokenChunks, C}).slice(rank_ * own + i, 1).view({C});
      };
      const auto row = [&](const Tensor& x) {
        return x.slice(b, 1).view({T, C}).slice(t.begin, t.size()).view({1, t.size(), C});
      };
      const auto number = [&](const Tensor& x) {
        if (!x) return Tensor{};
        return x.slice(b, 1).view({T}).slice(t.begin, t.size()).view({1, t.size()});
      };
      ladder::norm_backward_weight(alone, {to(dw), to(db)}, row(dout), row(inp),
                                   {number(saved.mean), number(saved.rstd)}, Into::Write);
    }
  }

  /// Sequence b of x, flat.
  static Tensor sequence(const Tensor& x, int64_t b) { return flat(x.slice(b, 1)); }
  /// The positions of each rank in a sequence.
  Chunks by_rank(const Tensor& whole) const { return {whole.size(), ranks_}; }

  int64_t ranks_, rank_;
  Collectives tokens_;
  Tensor summand_, inp_, dproduct_;  ///< (MBS,T,C)
  Tensor chunks_;  ///< F32 (2 MBS,kTokenChunks,C): dw of each sequence, then any db
};

}  // namespace ladder
