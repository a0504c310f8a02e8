// Attention in pieces: all queries of a rank with some of the keys. `gather` has one piece with all
// keys; `ring` has one for each run of keys. Keys and values travel, queries do not. In qkv all
// three lie side by side, so queries are copied out into one tensor, keys and values into another.
#pragma once

#include "chapters/20_context_parallel/context.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

/// Rows [rows.begin, rows.end) of x (1,t,N).
inline Tensor rows_of(const Tensor& x, Range rows) {
  return x.view({x.dim(1), x.dim(2)})
      .slice(rows.begin, rows.size())
      .view({1, rows.size(), x.dim(2)});
}

/// A softmax over some keys, for all queries of a rank: o (1,t,C), m, l (1,NH,t). Others call it a
/// block's output with its log-sum-exp. In backward the memory of o holds dq.
struct PartialSoftmax {
  Tensor o, m, l;
};

class PieceAttention : public SharedAttention {
 public:
  /// Keys and values of all other ranks come here, and in backward their gradients in FP32, too.
  static ContextTraffic traffic(const ContextShape& s) {
    const int64_t elements = (s.own.cp - 1) * s.own.size() * s.kv(), e = size_of(s.dtype);
    return {.forward = e * elements, .backward = (e + 4) * elements};
  }

 protected:
  PieceAttention(Arena& arena, const ContextShape& shape)
      : SharedAttention(shape),
        q_(arena.alloc(Mem::Workspace, "context.q", s.dtype, {1, s.own.size(), s.q()})) {}

  static int64_t query_bytes(const ContextShape& s) {
    return size_of(s.dtype) * s.own.size() * s.q();
  }
  static PartialSoftmax alloc_softmax(Arena& arena, const ContextShape& s) {
    const auto alloc = [&](const char* name, Shape shape) {
      return arena.alloc(Mem::Workspace, name, Dtype::F32, shape);
    };
    const int64_t t = s.own.size();
    return {alloc("context.o", {1, t, s.q()}), alloc("context.m", {1, s.NH, t}),
            alloc("context.l", {1, s.NH, t})};
  }
  static int64_t softmax_bytes(const ContextShape& s) {
    return 4 * s.own.size() * (s.q() + 2 * s.NH);
  }

  // A row of qkv holds, for each key-value head, its NH / NKV query heads, then k, then v. So do
  // the rows of their gradients.
  void take_queries(const Ctx& ctx, const Tensor& qkv) const {
    ctx.kernels->copy_columns(ctx, by_group(q_), 0, by_group(qkv), 0, s.q() / s.NKV);
  }
  /// Copies keys and values of all rows of qkv (1,t,..) to kv (1,t,2*NKV*HS).
  void take_keys(const Ctx& ctx, const Tensor& kv, const Tensor& qkv) const {
    ctx.kernels->copy_columns(ctx, by_group(kv), 0, by_group(qkv), s.q() / s.NKV, s.kv() / s.NKV);
  }
  void put_queries(const Ctx& ctx, const Tensor& dqkv, const Tensor& dq) const {
    ctx.kernels->copy_columns(ctx, by_group(dqkv), 0, by_group(dq), 0, s.q() / s.NKV);
  }
  void put_keys(const Ctx& ctx, const Tensor& dqkv, const Tensor& dkv) const {
    ctx.kernels->copy_columns(ctx, by_group(dqkv), s.q() / s.NKV, by_group(dkv), 0, s.kv() / s.NKV);
  }

  /// The softmax of this rank's queries over `keys`. kv (1,n,2*NKV*HS) holds these keys.
  void forward_piece(const Ctx& ctx, const PartialSoftmax& to, const Tensor& kv, Range keys) {
    const Span span(ctx, "attention_piece_forward");
    count_pairs(ctx, /*back=*/false, s.NH, s.own.pairs(keys));
    ctx.kernels->attention_piece_forward(ctx, to.o, to.m, to.l, q_, kv, s.own.place(keys.begin));
  }
  /// dq of this rank's queries and dkv of `keys`, from the same pairs. It writes and does not add.
  void backward_piece(const Ctx& ctx, const Tensor& dq, const Tensor& dkv, const AttnGrads& d,
                      const AttnSaved& saved, const Tensor& kv, Range keys) {
    const Span span(ctx, "attention_piece_backward");
    count_pairs(ctx, /*back=*/true, s.NH, s.own.pairs(keys));
    ctx.kernels->attention_piece_backward(ctx, dq, dkv, d.datt, q_, kv, saved.att, saved.lse,
                                          s.own.place(keys.begin));
  }

  Tensor q_;  ///< (1,t,C)

 private:
  Tensor by_group(const Tensor& x) const { return x.view({x.rows(), s.NKV, x.dim(-1) / s.NKV}); }
};

}  // namespace ladder
