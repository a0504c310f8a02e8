// Sequence parallelism: ranks that share each layer share what lies between the layers, too
// (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
// arXiv 2205.05198).
//
// Norms and residuals work on each token by itself. So between the shared parts rank r of t has its
// own positions of every sequence alone, [r T/t, (r+1) T/t). A shared part needs all of them, so
// they are gathered before it; and of the sum behind it a rank takes its own:
//
//            forward           backward
//      f     all-gather        reduce-scatter
//      g     reduce-scatter    all-gather
//
// An all-reduce is a reduce-scatter and an all-gather, so these send as many bytes as without
// this. What backward gathers once more comes on top. The paper calls the two g and g-bar.
#pragma once

#include <cstdint>

#include "common/comm/elements.h"
#include "common/comm/reduction.h"
#include "common/model/config.h"
#include "common/model/parts.h"
#include "kernels/arena.h"

namespace ladder {

/// Gradients of a norm's parameters: of its gain, and of a bias where it has one.
inline int64_t norm_gradients(const GptConfig& gpt) { return gpt.norm == Norm::Layer ? 2 : 1; }

/// How ranks exchange the tokens of sequences, and gradients of which each has a part.
class SequenceParallel {
 public:
  /// @param group ranks that share each sequence, in the order of its positions
  /// @param micro sequences of a micro-batch, at most
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
    bytes[Mem::Comm] += size_of(dtype) * Reducer::workspace_elements(ranks, sequence);
  }

  /// This rank's summand of all positions (MBS,T,C).
  Tensor summand() const { return summand_; }
  /// own (n,T/t,C) = own positions of the sum of summand() over ranks, which is used up.
  void reduce_scatter(const Ctx& ctx, Tensor own) {
    const Span span(ctx, "reduce_scatter");
    for (int64_t b = 0; b < own.dim(0); ++b) {
      const Tensor whole = sequence(summand_, b);
      tokens_.reduce_scatter(whole, by_rank(whole));
      copy_elements(sequence(own, b), by_rank(whole).of(whole, rank_), ctx.device);
    }
  }

  /// What a shared part reads, of all positions: (n,T,C) of own (n,T/t,C). There until the next
  /// call.
  Tensor gather_inp(const Ctx& ctx, Tensor own) { return gather(ctx, inp_, own); }
  /// The gradient of what it makes, likewise.
  Tensor gather_dproduct(const Ctx& ctx, Tensor own) { return gather(ctx, dproduct_, own); }

  /// Gradients of a norm. A rank's tokens of a sequence are neighbors, kTokenChunks / t of its
  /// chunks (kernels/token_leaves.h); but the sum over a sequence folds early ones with late ones.
  /// So ranks gather the sums of all chunks, and each joins them. dout, inp (n,T/t,C)
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
    // Each chunk is like a token now.
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

  /// Sums of this rank's chunks of sequence b, to their rows of dw and db (n,kTokenChunks,C).
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
  /// Each rank's positions of a sequence.
  Chunks by_rank(const Tensor& whole) const { return {whole.size(), ranks_}; }

  int64_t ranks_, rank_;
  Reducer tokens_;
  Tensor summand_, inp_, dproduct_;  ///< (MBS,T,C)
  Tensor chunks_;  ///< F32 (2 MBS,kTokenChunks,C): dw of each sequence, then any db
};

}  // namespace ladder
