// The shapes of attention, whole and in pieces, and of rotary positions.
#include "kernels/attention_rows.h"
#include "kernels/check_shapes.h"
#include "kernels/shapes.h"

namespace ladder {
namespace {

/// The channels of out must fall into NH heads.
void check_heads(const char* op, int64_t NH, int64_t C) {
  CHECK(NH > 0 && C % NH == 0, "{}: {} heads do not divide {} channels", op, NH, C);
}

/// The number of key-value heads: `columns` holds a key and a value for each. Each key-value head
/// serves a group of query heads.
int64_t groups_of(const char* op, const char* name, int64_t columns, int64_t NH, int64_t HS) {
  const int64_t NKV = columns / (2 * HS);
  CHECK(NKV > 0 && columns == 2 * NKV * HS && NH % NKV == 0,
        "{}: {} columns for keys and values in {}, not {} times a divisor of {}", op, columns, name,
        2 * HS, NH);
  return NKV;
}

/// What forward and backward have in common.
AttentionShape check_attention(const char* op, const Tensor& out, const Tensor& lse,
                               const Tensor& qkv) {
  check_first(op, "out", out, 3);
  check_first(op, "lse", lse, 3);
  check_first(op, "qkv", qkv, 3);
  const int64_t B = out.dim(0), T = out.dim(1), C = out.dim(2), NH = lse.dim(1);
  check(op, {{"out", out, out.dtype, out.shape},
             {"lse", lse, wide(out.dtype), {B, NH, T}},
             {"qkv", qkv, out.dtype, {B, T, qkv.dim(2)}}});
  check_heads(op, NH, C);
  const int64_t NKV = groups_of(op, "qkv", qkv.dim(2) - C, NH, C / NH);
  return {.B = B, .T = T, .NH = NH, .NKV = NKV, .HS = C / NH};
}

/// Tokens [begin, begin + count) of T must be whole chunks of the sequence.
void check_chunks(const char* op, const char* name, int64_t begin, int64_t count, int64_t T) {
  const Range range{begin, begin + count};
  const auto at_chunk = [&](int64_t token) {
    const int64_t chunks = key_chunks(T);
    for (int64_t i = 0; i <= chunks; ++i)
      if (leaf(i, chunks, T).begin == token) return true;
    return false;
  };
  CHECK(begin >= 0 && range.end <= T && at_chunk(range.begin) && at_chunk(range.end),
        "{}: {} of tokens {} to {} of {}; legal are whole chunks, of which there are {}", op, name,
        range.begin, range.end, T, key_chunks(T));
}

/// What forward and backward of a piece have in common.
AttentionPieceShape check_piece(const char* op, const Tensor& q, const Tensor& kv,
                                const Tensor& statistic, const AttentionPlace& place) {
  check_first(op, "q", q, 3);
  check_first(op, "kv", kv, 3);
  check_first(op, "m or lse", statistic, 3);
  const int64_t B = q.dim(0), Tq = q.dim(1), C = q.dim(2), NH = statistic.dim(1);
  check_heads(op, NH, C);
  const AttentionPieceShape s{B,     Tq, kv.dim(1), NH, groups_of(op, "kv", kv.dim(2), NH, C / NH),
                              C / NH};
  check(op, {{"kv", kv, q.dtype, {B, s.Tk, kv.dim(2)}},
             {"m or lse", statistic, wide(q.dtype), {B, NH, Tq}}});
  for (const TokenRun& run : query_runs(place, Tq))
    check_chunks(op, "queries", run.tokens.begin, run.tokens.size(), place.T);
  check_chunks(op, "keys", place.keys, s.Tk, place.T);
  return s;
}

/// (o, m, l): the columns of o are the channels of NH heads.
AttentionPieceShape check_partial(const char* op, const Tensor& o, const Tensor& m,
                                  const Tensor& l) {
  check_first(op, "o", o, 3);
  check_first(op, "m", m, 3);
  const int64_t B = o.dim(0), Tq = o.dim(1), C = o.dim(2), NH = m.dim(1);
  check(op, {{"o", o, wide(o.dtype), o.shape},
             {"m", m, o.dtype, {B, NH, Tq}},
             {"l", l, o.dtype, {B, NH, Tq}}});
  check_heads(op, NH, C);
  return {B, Tq, 0, NH, NH, C / NH};
}

}  // namespace

RopeShape check_rope(const Tensor& qkv, const Tensor& angles, int64_t heads) {
  constexpr const char* kOp = "rope";
  check_first(kOp, "qkv", qkv, 3);
  CHECK(angles.shape.rank == 2, "{}: angles is {}, not of rank 2", kOp, to_string(angles.shape));
  const int64_t T = qkv.dim(1), P = angles.dim(0), HS = angles.dim(1);
  check(kOp, {{"qkv", qkv, qkv.dtype, qkv.shape}, {"angles", angles, Dtype::F32, {P, HS}}});
  CHECK(HS > 0 && HS % 2 == 0, "{}: heads of {} channels cannot be cut into pairs", kOp, HS);
  CHECK(P >= T, "{}: {} tokens, angles of {}", kOp, T, P);
  CHECK(heads > 0, "{}: {} heads", kOp, heads);
  const int64_t NKV = groups_of(kOp, "qkv", qkv.dim(2) - heads * HS, heads, HS);
  return {.B = qkv.dim(0), .T = T, .NKV = NKV, .turned = heads / NKV + 1, .HS = HS};
}

AttentionShape check_attention_forward(const Tensor& out, const Tensor& lse, const Tensor& qkv) {
  return check_attention("attention_forward", out, lse, qkv);
}

AttentionShape check_attention_backward(const Tensor& dqkv, const Tensor& dout, const Tensor& qkv,
                                        const Tensor& out, const Tensor& lse) {
  constexpr const char* kOp = "attention_backward";
  check(kOp, {{"dqkv", dqkv, qkv.dtype, qkv.shape}, {"dout", dout, out.dtype, out.shape}});
  return check_attention(kOp, out, lse, qkv);
}

AttentionPieceShape check_attention_piece_forward(const Tensor& o, const Tensor& m, const Tensor& l,
                                                  const Tensor& q, const Tensor& kv,
                                                  const AttentionPlace& place) {
  constexpr const char* kOp = "attention_piece_forward";
  const AttentionPieceShape s = check_piece(kOp, q, kv, m, place);
  check(kOp, {{"o", o, wide(q.dtype), q.shape}, {"l", l, m.dtype, m.shape}});
  return s;
}

AttentionPieceShape check_attention_piece_backward(const Tensor& dq, const Tensor& dkv,
                                                   const Tensor& dout, const Tensor& q,
                                                   const Tensor& kv, const Tensor& out,
                                                   const Tensor& lse, const AttentionPlace& place) {
  constexpr const char* kOp = "attention_piece_backward";
  const AttentionPieceShape s = check_piece(kOp, q, kv, lse, place);
  check(kOp, {{"dq", dq, wide(q.dtype), q.shape},
              {"dkv", dkv, wide(q.dtype), kv.shape},
              {"dout", dout, q.dtype, q.shape},
              {"out", out, q.dtype, q.shape}});
  return s;
}

AttentionPieceShape check_attention_merge(const Tensor& o, const Tensor& m, const Tensor& l,
                                          const Tensor& later_o, const Tensor& later_m,
                                          const Tensor& later_l) {
  constexpr const char* kOp = "attention_merge";
  check(kOp, {{"later o", later_o, o.dtype, o.shape},
              {"later m", later_m, m.dtype, m.shape},
              {"later l", later_l, l.dtype, l.shape}});
  return check_partial(kOp, o, m, l);
}

AttentionPieceShape check_attention_finish(const Tensor& out, const Tensor& lse, const Tensor& o,
                                           const Tensor& m, const Tensor& l) {
  constexpr const char* kOp = "attention_finish";
  check_float(kOp, "out", out.dtype);
  CHECK(wide(out.dtype) == o.dtype, "{}: out has the wrong dtype", kOp);
  check(kOp, {{"out", out, out.dtype, o.shape}, {"lse", lse, m.dtype, m.shape}});
  return check_partial(kOp, o, m, l);
}

}  // namespace ladder
