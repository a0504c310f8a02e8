// Sequence parallelism: ranks that share each layer share what lies between the layers, too
// (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
// arXiv 2205.05198).
//
// Norms and joins work on each token by itself. So rank r of t keeps the stream and all else
// between the shared parts for its own positions of every sequence alone, [r T/t, (r+1) T/t). A
// shared part needs all positions, so they are gathered before it; and of the sum behind it a rank
// takes its own:
//
//            forward           backward
//      f     all-gather        reduce-scatter
//      g     reduce-scatter    all-gather
//
// An all-reduce is a reduce-scatter and an all-gather, so as many bytes travel as without this. The
// paper calls the two g and g-bar.
#pragma once

#include <cstdint>

#include "common/comm/elements.h"
#include "common/comm/reduction.h"
#include "common/model/activations.h"
#include "common/model/config.h"
#include "common/model/parts.h"
#include "kernels/arena.h"

namespace ladder {

/// How ranks exchange the tokens of sequences, and gradients of which each has a part.
class SequenceParallel {
 public:
  /// @param group ranks that share each sequence, in the order of its positions
  /// @param micro sequences of a micro-batch, at most
  SequenceParallel(Arena& arena, const Ctx& ctx, Comm& group, const GptConfig& gpt, Dtype dtype,
                   int64_t micro)
      : ranks_(group.size()),
        rank_(group.rank()),
        tokens_(group, ctx, Reduction::Halving, arena, dtype, gpt.seq_len * gpt.channels),
        sums_(group, ctx, Reduction::Halving, arena, Dtype::F32, 2 * micro * gpt.channels) {
    const Shape whole{micro, gpt.seq_len, gpt.channels};
    inp_ = arena.alloc(Mem::Workspace, "gathered.inp", dtype, whole);
    dproduct_ = arena.alloc(Mem::Workspace, "gathered.dproduct", dtype, whole);
    partial_ = arena.alloc(Mem::Workspace, "partial", Dtype::F32, {2 * micro, gpt.channels});
  }

  /// Adds what the constructor allocates to a prediction.
  static void add_bytes(MemoryBytes& bytes, const GptConfig& gpt, Dtype dtype, int ranks,
                        int64_t micro) {
    const int64_t sequence = gpt.seq_len * gpt.channels, partial = 2 * micro * gpt.channels;
    bytes[Mem::Workspace] += 2 * size_of(dtype) * micro * sequence + 4 * partial;
    bytes[Mem::Comm] += size_of(dtype) * Reducer::workspace_elements(ranks, sequence) +
                        4 * Reducer::workspace_elements(ranks, partial);
  }

  /// What a shared part reads, of all positions: (n,T,C) of own (n,T/t,C). There until the next
  /// call.
  Tensor gather_inp(const Ctx& ctx, Tensor own) { return gather(ctx, inp_, own); }
  /// The gradient of its product, likewise.
  Tensor gather_dproduct(const Ctx& ctx, Tensor own) { return gather(ctx, dproduct_, own); }

  /// Own positions (n,T/t,C) of the sum of x (n,T,C) over ranks. They take the front of x, the rest
  /// is used up.
  Tensor reduce_scatter(const Ctx& ctx, Tensor x) {
    const Span span(ctx, "reduce_scatter");
    const int64_t n = x.dim(0), T = x.dim(1), C = x.dim(2);
    const Tensor own = flat(x).first(x.size() / ranks_).view({n, div_exact(T, ranks_), C});
    for (int64_t b = 0; b < n; ++b) {
      tokens_.reduce_scatter(sequence(x, b), chunks(x));
      copy_elements(sequence(own, b), chunks(x).of(sequence(x, b), rank_), ctx.device);
    }
    return own;
  }

  /// Gradients of a norm. A rank's tokens of a sequence are kLeaves / t of the leaves into which
  /// the sum over that sequence falls. So sums of one sequence are joined over ranks first, and
  /// then, as ever, over sequences. dout, inp (n,T/t,C)
  void norm_backward_weight(const Ctx& ctx, const Affine& grads, Tensor dout, Tensor inp,
                            const NormSaved& saved, Into into) {
    const int64_t n = dout.dim(0), C = dout.dim(2);
    const Tensor partial = partial_.first(2 * n), dw = partial.first(n), db = partial.slice(n, n);
    Ctx own = ctx;
    own.token_leaves = kLeaves / static_cast<int>(ranks_);
    for (int64_t b = 0; b < n; ++b)
      ladder::norm_backward_weight(own, {sequence(dw, b), sequence(db, b)}, dout.slice(b, 1),
                                   inp.slice(b, 1),
                                   {saved.mean.slice(b, 1), saved.rstd.slice(b, 1)}, Into::Write);
    sums_.all_reduce(partial);
    // Now each sequence is like one of a single token.
    ctx.kernels->bias_backward(ctx, grads.w, dw.view({n, 1, C}), into);
    ctx.kernels->bias_backward(ctx, grads.b, db.view({n, 1, C}), into);
  }

 private:
  Tensor gather(const Ctx& ctx, Tensor buffer, Tensor own) {
    const Span span(ctx, "all_gather");
    const Tensor x = buffer.first(own.dim(0));
    for (int64_t b = 0; b < x.dim(0); ++b) {
      copy_elements(chunks(x).of(sequence(x, b), rank_), sequence(own, b), ctx.device);
      tokens_.all_gather(sequence(x, b), chunks(x));
    }
    return x;
  }

  /// Sequence b of x, flat.
  static Tensor sequence(const Tensor& x, int64_t b) { return flat(x.slice(b, 1)); }
  /// The positions of a sequence of x, by rank.
  Chunks chunks(const Tensor& x) const { return {x.size() / x.dim(0), ranks_}; }

  int64_t ranks_, rank_;
  Reducer tokens_, sums_;
  Tensor inp_, dproduct_;  ///< (MBS,T,C)
  Tensor partial_;         ///< (2 MBS,C): dw of each sequence, then db
};

}  // namespace ladder
