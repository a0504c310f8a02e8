// Sequence parallelism: ranks that split each layer also split what lies between the layers
// (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
// arXiv 2205.05198).
//
// Norms and residuals treat each token by itself. So between the parts that ranks split (attention
// and MLP), rank r of t has only its own positions of every sequence, [r T/t, (r+1) T/t). A split
// part needs all positions, so they are gathered before it. After it, a rank takes its own
// positions of the sum:
//
//            forward           backward
//      f     all-gather        reduce-scatter
//      g     reduce-scatter    all-gather
//
// An all-reduce is a reduce-scatter and an all-gather, so these send as many bytes as the
// all-reduces without sequence parallelism. But backward gathers some tensors a second time, and
// those bytes come on top. (In the paper our f is called g, and our g is called g-bar.)
//
// All sequences of a micro-batch travel at once. A collective wants what it gives to a rank in one
// piece, but in (n,T,C) a rank has a piece of each sequence. So what travels lies rank by rank,
// (t,n,T/t,C). With 2 sequences, a and b, of 4 tokens, on 2 ranks:
//
//     (n,T,C)        a0 a1 a2 a3   b0 b1 b2 b3
//     (t,n,T/t,C)    a0 a1 b0 b1   a2 a3 b2 b3
#pragma once

#include <cstdint>

#include "common/comm/elements.h"
#include "common/comm/reduction.h"
#include "common/model/config.h"
#include "common/model/parts.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

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
        tokens_(group, ctx, Reduction::Halving, arena, dtype, micro * gpt.seq_len * gpt.channels) {
    const Shape whole{micro, gpt.seq_len, gpt.channels};
    summand_ = arena.alloc(Mem::Workspace, "summand", dtype, whole);
    inp_ = arena.alloc(Mem::Workspace, "gathered.inp", dtype, whole);
    dproduct_ = arena.alloc(Mem::Workspace, "gathered.dproduct", dtype, whole);
    const Shape chunks{norm_gradients(gpt) * micro, ctx.token_chunks, gpt.channels};
    chunks_ = arena.alloc(Mem::Workspace, "chunks", Dtype::F32, chunks);
    chunks_by_rank_ = arena.alloc(Mem::Workspace, "chunks.by_rank", Dtype::F32, chunks);
  }

  /// Adds what the constructor allocates to a prediction.
  /// @param token_chunks of a sequence, on these ranks
  static void add_bytes(MemoryBytes& bytes, const GptConfig& gpt, Dtype dtype, int ranks,
                        int64_t micro, int64_t token_chunks = kTokenChunks) {
    const int64_t tokens = micro * gpt.seq_len * gpt.channels;
    const int64_t chunks = norm_gradients(gpt) * micro * token_chunks * gpt.channels;
    bytes[Mem::Workspace] += 3 * size_of(dtype) * tokens + 2 * 4 * chunks;
    bytes[Mem::Comm] += size_of(dtype) * Collectives::workspace_elements(ranks, tokens);
  }

  /// This rank's summand for all positions (MBS,T,C). It is valid until the next call below.
  Tensor summand() const { return summand_; }
  /// own (n,T/t,C) = own positions of the sum of summand() over ranks. What gather_inp() has
  /// returned is then overwritten: its memory is where the summands travel.
  void reduce_scatter(const Ctx& ctx, Tensor own) {
    const Span span(ctx, "reduce_scatter");
    const Tensor parts = flat(inp_.first(own.dim(0)));
    to_ranks(ctx, parts, summand_.first(own.dim(0)));
    tokens_.reduce_scatter(parts, by_rank(parts));
    copy_elements(flat(own), by_rank(parts).of(parts, rank_), ctx.device);
  }

  /// The input of a split part for all positions, (n,T,C), gathered from own (n,T/t,C). It is
  /// valid until the next call, or reduce_scatter().
  Tensor gather_inp(const Ctx& ctx, Tensor own) { return gather(ctx, inp_, own); }
  /// The gradient of a split part's product, gathered in the same way. It is valid until the next
  /// call.
  Tensor gather_dproduct(const Ctx& ctx, Tensor own) { return gather(ctx, dproduct_, own); }

  /// Gradients of a norm. A rank's tokens are neighbors: token_chunks / t whole chunks of each
  /// sequence (kernels/token_leaves.h). But a sum over a sequence folds an early chunk with a late
  /// one. So ranks gather the sums of all chunks, and each rank joins them. dout, inp (n,T/t,C)
  void norm_backward_weight(const Ctx& ctx, const Affine& grads, Tensor dout, Tensor inp,
                            const NormSaved& saved, Into into) {
    const int64_t n = dout.dim(0), sequences = grads.b ? 2 * n : n, C = dout.dim(2);
    const Tensor parts = flat(chunks_by_rank_.first(sequences));
    const Tensor own =
        by_rank(parts).of(parts, rank_).view({sequences, ctx.token_chunks / ranks_, C});
    sum_chunks(ctx, own.first(n), grads.b ? own.slice(n, n) : Tensor{}, dout, inp, saved);
    tokens_.all_gather(parts, by_rank(parts));
    const Tensor sums = chunks_.first(sequences);
    from_ranks(ctx, sums, parts);
    // From here on, a chunk's sum is treated like a token.
    bias_backward_weight(ctx, grads.w, sums.first(n), into);
    if (grads.b) bias_backward_weight(ctx, grads.b, sums.slice(n, n), into);
  }

 private:
  Tensor gather(const Ctx& ctx, Tensor buffer, Tensor own) {
    const Span span(ctx, "all_gather");
    const Tensor whole = buffer.first(own.dim(0)), parts = flat(summand_.first(own.dim(0)));
    copy_elements(by_rank(parts).of(parts, rank_), flat(own), ctx.device);
    tokens_.all_gather(parts, by_rank(parts));
    from_ranks(ctx, whole, parts);
    return whole;
  }

  /// Writes the sums of this rank's chunks of each sequence to dw and any db, (n,token_chunks/t,C).
  void sum_chunks(const Ctx& ctx, Tensor dw, Tensor db, Tensor dout, Tensor inp,
                  const NormSaved& saved) const {
    Ctx alone = ctx;
    alone.token_chunks = 1;
    const int64_t chunks = dw.dim(1), T = dout.dim(1), C = dout.dim(2);
    for (int64_t i = 0; i < dout.dim(0) * chunks; ++i) {
      const Range t = leaf(i % chunks, chunks, T);
      const int64_t first = i / chunks * T + t.begin;  // of all tokens
      const auto to = [&](const Tensor& sums) {
        return sums ? flat(sums).slice(i * C, C) : Tensor{};
      };
      const auto row = [&](const Tensor& x) {
        return flat(x).slice(first * C, t.size() * C).view({1, t.size(), C});
      };
      const auto number = [&](const Tensor& x) {
        return x ? flat(x).slice(first, t.size()).view({1, t.size()}) : Tensor{};
      };
      ladder::norm_backward_weight(alone, {to(dw), to(db)}, row(dout), row(inp),
                                   {number(saved.mean), number(saved.rstd)}, Into::Write);
    }
  }

  /// parts (t,n,T/t,C) = the positions of each rank in whole (n,T,C).
  void to_ranks(const Ctx& ctx, Tensor parts, Tensor whole) const {
    const int64_t n = whole.dim(0), part = parts.size() / ranks_ / n;
    for (int64_t r = 0; r < ranks_; ++r)
      ctx.kernels->copy_columns(ctx, by_rank(parts).of(parts, r).view({n, 1, part}), 0,
                                whole.view({n, 1, ranks_ * part}), r * part, part);
  }
  /// The way back.
  void from_ranks(const Ctx& ctx, Tensor whole, Tensor parts) const {
    const int64_t n = whole.dim(0), part = parts.size() / ranks_ / n;
    for (int64_t r = 0; r < ranks_; ++r)
      ctx.kernels->copy_columns(ctx, whole.view({n, 1, ranks_ * part}), r * part,
                                by_rank(parts).of(parts, r).view({n, 1, part}), 0, part);
  }

  /// The part of each rank in what travels.
  Chunks by_rank(const Tensor& parts) const { return {parts.size(), ranks_}; }

  int64_t ranks_, rank_;
  Collectives tokens_;
  Tensor summand_, inp_, dproduct_;  ///< (MBS,T,C)
  /// F32 (2 MBS,token_chunks,C): dw of each sequence, then any db; and how they travel
  Tensor chunks_, chunks_by_rank_;
};

}  // namespace ladder
