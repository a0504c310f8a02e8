// --context gather: every rank gets the keys and values of all tokens (Llama 3 was trained in this
// way, arXiv 2407.21783, section 3.3.2).
//
//   forward    all-gather keys, values         attention of own queries over all keys
//   backward   all-gather keys, values again   dq of own queries; dk, dv of all keys
//              reduce-scatter dk, dv           each rank gets the sums for its own keys
//
// With grouped heads, keys and values are small, so gathering them is cheap. But a rank holds those
// of all tokens. Forward does not keep them, so backward gathers them again.
//
// An all-gather puts the ranks' tensors one after the other, but attention needs the order of
// tokens. The early runs of ranks 0, 1, ... are the first half of the sequence. The late runs are
// the second half, from the last rank to the first: with 4 ranks, runs 7 6 5 4 are those of ranks
// 0 1 2 3. So each half is gathered in place by its own group, and the second group numbers its
// ranks backwards. Its sums have the same bits: the tree is the same, but both sides of each
// addition are exchanged, and a + b is b + a.
#pragma once

#include <memory>
#include <vector>

#include "chapters/20_context_parallel/pieces.h"
#include "common/comm/reduction.h"

namespace ladder {

class GatherAttention : public PieceAttention {
 public:
  /// @param group the ranks that split each sequence
  GatherAttention(Arena& arena, const Ctx& ctx, Comm& group, const ContextShape& shape)
      : PieceAttention(arena, shape), sum_(alloc_softmax(arena, s)) {
    kv_ = arena.alloc(Mem::Workspace, "context.kv", s.dtype, {1, s.own.T, s.kv()});
    dkv_ = arena.alloc(Mem::Workspace, "context.dkv", Dtype::F32, {1, s.own.T, s.kv()});
    for (const bool late : {false, true}) {
      groups_.push_back(group.split(0, late ? group.size() - 1 - group.rank() : group.rank()));
      halves_.emplace_back(*groups_.back(), ctx, Reduction::Halving, arena, Dtype::F32,
                           s.own.T / 2 * s.kv());
    }
  }

  static void add_bytes(MemoryBytes& bytes, const ContextShape& s) {
    bytes[Mem::Workspace] +=
        query_bytes(s) + softmax_bytes(s) + (size_of(s.dtype) + 4) * s.own.T * s.kv();
    bytes[Mem::Comm] +=
        2 * 4 * Collectives::workspace_elements(static_cast<int>(s.own.cp), s.own.T / 2 * s.kv());
  }

  void forward(const Ctx& ctx, const AttnSaved& saved) override {
    take_queries(ctx, saved.qkv);
    gather_keys(ctx, saved.qkv);
    forward_piece(ctx, sum_, kv_, {0, s.own.T});
    ctx.kernels->attention_finish(ctx, saved.att, saved.lse, sum_.o, sum_.m, sum_.l);
  }

  void backward(const Ctx& ctx, const AttnGrads& d, const AttnSaved& saved) override {
    take_queries(ctx, saved.qkv);
    gather_keys(ctx, saved.qkv);
    const Tensor dq = sum_.o;  // memory that backward does not need otherwise
    backward_piece(ctx, dq, dkv_, d, saved, kv_, {0, s.own.T});
    put_queries(ctx, d.dqkv, dq);
    const Span span(ctx, "reduce_scatter");
    for (const int i : {0, 1}) {
      const Tensor all = half(dkv_, i);
      halves_[static_cast<size_t>(i)].reduce_scatter(all, {all.size(), s.own.cp});
      put_keys(ctx, rows_of(d.dqkv, s.own.rows(i)), rows_of(dkv_, s.own.tokens(i)));
    }
  }

  void show(Log& log) override {
    for (const auto& group : groups_) log.count(*group);
  }
  int64_t sent(const Log& log) const override {
    return log.sent_in_step(*groups_[0]) + log.sent_in_step(*groups_[1]);
  }

 private:
  void gather_keys(const Ctx& ctx, const Tensor& qkv) {
    const Span span(ctx, "all_gather");
    for (const int i : {0, 1}) {
      take_keys(ctx, rows_of(kv_, s.own.tokens(i)), rows_of(qkv, s.own.rows(i)));
      const Tensor all = half(kv_, i);
      halves_[static_cast<size_t>(i)].all_gather(all, {all.size(), s.own.cp});
    }
  }
  /// The first (0) or the second (1) half of all tokens, flat.
  Tensor half(const Tensor& x, int64_t i) const {
    return flat(rows_of(x, {i * s.own.T / 2, (i + 1) * s.own.T / 2}));
  }

  PartialSoftmax sum_;
  Tensor kv_, dkv_;  ///< (1,T,2*NKV*HS) of all ranks; dkv is F32
  std::vector<std::unique_ptr<Comm>> groups_;
  std::vector<Collectives> halves_;  ///< of the early runs, and of the late ones
};

}  // namespace ladder
