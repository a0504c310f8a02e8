// --context ulysses: exchanges tokens for heads (Jacobs et al., "DeepSpeed Ulysses",
// arXiv 2309.14509).
//
// No head reads another head. So a rank that has all tokens of some heads can do attention as a
// single rank does. An all-to-all transposes tokens into heads, and another one transposes back:
//
//              tokens of rank 0   of rank 1              rank 0        rank 1
//     heads 0        a                b          ->      a b
//     heads 1        c                d                                 c d
//
//              to heads                                          back to tokens
//   forward    queries, keys, values                             outputs
//   backward   queries, keys, values, outputs and their gradient dq, dk, dv
//
// The log-sum-exp is not sent back, because backward needs it by head. Every rank needs heads of
// its own, so there can be no more ranks than key-value heads.
#pragma once

#include <memory>

#include "chapters/20_context_parallel/context.h"
#include "common/comm/chunks.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

class UlyssesAttention : public SharedAttention {
 public:
  /// @param group the ranks that split each sequence
  UlyssesAttention(Arena& arena, Comm& group, const ContextShape& shape)
      : SharedAttention(shape), group_(group.split(0, group.rank())) {
    const auto alloc = [&](const char* name, int64_t width) {
      return arena.alloc(Mem::Workspace, name, s.dtype, {1, s.own.T, width / s.own.cp});
    };
    out_ = alloc("context.out", s.qkv());
    inp_ = alloc("context.inp", s.qkv());
    qkv_ = alloc("context.qkv", s.qkv());
    dqkv_ = alloc("context.dqkv", s.qkv());
    att_ = alloc("context.att", s.q());
    datt_ = alloc("context.datt", s.q());
  }

  static void add_bytes(MemoryBytes& bytes, const ContextShape& s) {
    bytes[Mem::Workspace] += size_of(s.dtype) * s.own.size() * (4 * s.qkv() + 2 * s.q());
  }
  static ContextTraffic traffic(const ContextShape& s) {
    const int64_t whole = size_of(s.dtype) * (s.own.cp - 1) * s.own.size() * (s.qkv() + s.q());
    return {.forward = whole / s.own.cp, .backward = 2 * whole / s.own.cp};
  }

  void forward(const Ctx& ctx, const AttnSaved& saved) override {
    to_heads(ctx, qkv_, saved.qkv);
    {
      const Span span(ctx, "attention_forward");
      count_pairs(ctx, /*back=*/false, local_heads(), s.own.T * (s.own.T + 1) / 2);
      ctx.kernels->attention_forward(ctx, att_, lse(saved), qkv_);
    }
    to_tokens(ctx, saved.att, att_);
  }

  void backward(const Ctx& ctx, const AttnGrads& d, const AttnSaved& saved) override {
    to_heads(ctx, qkv_, saved.qkv);
    to_heads(ctx, att_, saved.att);
    to_heads(ctx, datt_, d.datt);
    {
      const Span span(ctx, "attention_backward");
      count_pairs(ctx, /*back=*/true, local_heads(), s.own.T * (s.own.T + 1) / 2);
      ctx.kernels->attention_backward(ctx, dqkv_, datt_, qkv_, att_, lse(saved));
    }
    to_tokens(ctx, d.dqkv, dqkv_);
  }

  void show(Log& log) override { log.count(*group_); }
  int64_t sent(const Log& log) const override { return log.sent_in_step(*group_); }

 private:
  int64_t local_heads() const { return s.NH / s.own.cp; }
  /// lse as (1,NH/cp,T), in the memory of (1,NH,T/cp): both are NH T / cp numbers.
  Tensor lse(const AttnSaved& saved) const { return saved.lse.view({1, local_heads(), s.own.T}); }

  /// heads (1,T,N/cp) = all tokens of this rank's heads, from x (1,T/cp,N): all heads of its
  /// tokens.
  void to_heads(const Ctx& ctx, Tensor heads, Tensor x) {
    for_ranks(heads, [&](int64_t rank, Tensor leaving, Tensor) {
      copy(ctx, leaving, 0, rows(x), rank * heads.dim(2), heads.dim(2));
    });
    exchange(ctx, heads);
    for_ranks(heads, [&](int64_t rank, Tensor, Tensor arrived) {
      for_runs(rank, [&](Range tokens, Range own) {
        copy(ctx, part(rows(heads), tokens), 0, part(arrived, own), 0, heads.dim(2));
      });
    });
  }
  /// The way back: x = all heads of this rank's tokens, from heads.
  void to_tokens(const Ctx& ctx, Tensor x, Tensor heads) {
    for_ranks(heads, [&](int64_t rank, Tensor leaving, Tensor) {
      for_runs(rank, [&](Range tokens, Range own) {
        copy(ctx, part(leaving, own), 0, part(rows(heads), tokens), 0, heads.dim(2));
      });
    });
    exchange(ctx, heads);
    for_ranks(heads, [&](int64_t rank, Tensor, Tensor arrived) {
      copy(ctx, rows(x), rank * heads.dim(2), arrived, 0, heads.dim(2));
    });
  }

  /// Calls use(rank, leaving, arrived) with what goes to each rank and what comes from it,
  /// (T/cp,N/cp). Before exchange() a caller fills `leaving`, after it one reads `arrived`.
  template <class Use>
  void for_ranks(Tensor like, Use&& use) const {
    const int64_t t = s.own.size(), n = like.dim(2);
    const auto of = [&](const Tensor& x, int64_t rank) {
      return flat(x).slice(rank * t * n, t * n).view({t, n});
    };
    for (int64_t rank = 0; rank < s.own.cp; ++rank) use(rank, of(out_, rank), of(inp_, rank));
  }
  /// Calls use(tokens, rows) for both runs of a rank.
  template <class Use>
  void for_runs(int64_t rank, Use&& use) const {
    LocalTokens theirs = s.own;
    theirs.rank = rank;
    for (const int i : {0, 1}) use(theirs.tokens(i), theirs.rows(i));
  }
  void exchange(const Ctx& ctx, Tensor like) {
    const Span span(ctx, "all_to_all");
    group_->all_to_all(flat(inp_).first(like.size()), flat(out_).first(like.size()));
  }

  static Tensor rows(const Tensor& x) { return x.view({x.dim(1), x.dim(2)}); }
  static Tensor part(const Tensor& x, Range range) { return x.slice(range.begin, range.size()); }
  static void copy(const Ctx& ctx, Tensor to, int64_t to_column, Tensor from, int64_t from_column,
                   int64_t count) {
    ctx.kernels->copy_columns(ctx, to.view({to.dim(0), 1, to.dim(1)}), to_column,
                              from.view({from.dim(0), 1, from.dim(1)}), from_column, count);
  }

  std::unique_ptr<Comm> group_;
  Tensor out_, inp_;   ///< by rank, what leaves and what arrived: (1,T,N/cp), N at most qkv()
  Tensor qkv_, dqkv_;  ///< (1,T,qkv()/cp), all tokens of this rank's heads
  Tensor att_, datt_;  ///< (1,T,C/cp)
};

}  // namespace ladder
