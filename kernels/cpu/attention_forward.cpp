// Causal attention, forward, in blocks of queries and keys. A task is one head of one sequence. No
// row of scores is longer than a block (arXiv 2205.14135, 2307.08691).
//
// A softmax needs the largest score of its row, which is known only at the end. So a query walks
// over blocks of keys and keeps, for the keys so far,
//   m   the largest score;   l = sum_u exp(S[u] - m);   o = sum_u exp(S[u] - m) v_u.
// A block with a larger score raises m to m'. All exponentials so far are then too large by the
// same factor. One product each corrects them, with alpha = exp(m - m'):
//   l' = alpha l + sum_u exp(S[u] - m');   o' = alpha o + sum_u exp(S[u] - m') v_u.
// At the end, out = o / l and lse = m + log l. Example: scores 1 and 3 in two blocks. The first
// block leaves m = 1, l = 1. The second leaves m = 3, l = exp(1 - 3) 1 + 1, which is
// exp(1 - 3) + exp(3 - 3).
//
// Rescaling rounds, so bits depend on how the keys are cut. The cut serves ranks that share a
// sequence and get its keys in any order (token_leaves.h). Each chunk of keys has a running softmax
// of its own, over blocks from the chunk's first token on. Two softmaxes are merged as the
// (m, l, o) above: both are measured from the larger m, then added. The chunks are the leaves of a
// tree, in their natural order. A short sequence is one chunk, and nothing is merged.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/rows_in_place.h"
#include "kernels/cpu/table.h"
#include "kernels/documents.h"
#include "kernels/math.h"

namespace ladder::cpu {
namespace {

/// The running softmaxes of a block of queries.
struct Softmaxes {
  float* o;
  int64_t stride;  ///< from one row of o to the next
  float *m, *l;
};

/// The scratch of forward. Of a head it keeps the keys, transposed block by block, and the values:
/// of all blocks, or of one at a time if they come from a cache and many queries read them. It also
/// has room for one block of queries.
struct ForwardRoom {
  ForwardRoom(Dealer deal, const Piece& piece)
      : stride(row_stride(piece.s.HS)), HS(piece.s.HS), one(piece.cached) {
    k = deal.take((one ? 1 : std::ssize(piece.keys)) * kBlock * HS);
    v = deal.take(((one ? kBlock : piece.s.Tk) + kTileRows) * stride);
    q = deal.take(kBlock * stride);
    s = deal.take(kBlock * kBlock);
    alpha = deal.take(kBlock);
    const int64_t count = levels(key_chunks(piece.T));
    o = deal.take(count * kBlock * stride);
    m = deal.take(count * kBlock);
    l = deal.take(count * kBlock);
    floats = deal.used();
  }
  Softmaxes level(int level) const {
    return {o + level * kBlock * stride, stride, m + level * kBlock, l + level * kBlock};
  }
  /// Where block `index` of the keys is, and its values.
  float* keys(int64_t index) const { return one ? k : k + index * kBlock * HS; }
  float* values(const TokenBlock& block) const { return one ? v : v + block.row * stride; }

  int64_t stride, HS, floats;
  bool one;
  float *k, *v;      ///< (blocks, HS, kBlock), (Tk, stride)
  float* q;          ///< (kBlock, stride)
  float* s;          ///< (kBlock, kBlock): scores, then exponentials
  float* alpha;      ///< (kBlock)
  float *o, *m, *l;  ///< (kBlock, stride), (kBlock), (kBlock), for each level
};

/// Turns the scores of a block into exp(S - m), or 0 for a key that the query does not see: the
/// first query sees `seen` keys, and each later one a key more, if there is one. Updates m, l and
/// alpha. Products are rounded before m is subtracted, as m itself was. So no difference is above
/// 0.
void online_softmax(const ForwardRoom& room, const Softmaxes& sum, int64_t rows, int64_t keys,
                    int64_t seen, float scale) {
  for (int64_t i = 0; i < rows; ++i) {
    const float largest = lane_max(room.s + i * kBlock, std::min(keys, seen + i)) * scale;
    room.alpha[i] = std::exchange(sum.m[i], larger(sum.m[i], largest));
  }
  for_vectors(0, rows, [&](int64_t i, auto io) {
    io.store(exp(hn::Sub(io.load(room.alpha + i), io.load(sum.m + i))), room.alpha + i);
  });
  for (int64_t i = 0; i < rows; ++i) {
    float* s = room.s + i * kBlock;
    const int64_t end = std::min(keys, seen + i);
    const Vec m = broadcast(sum.m[i]);
    const float l = lane_sum(end, [&](int64_t u, auto io) {
      const Vec score = hn::Mul(io.load(s + u), broadcast(scale));
      const Vec e = io.only(exp(hn::Sub(score, m)));
      io.store(e, s + u);
      return e;
    });
    sum.l[i] = room.alpha[i] * sum.l[i] + l;
    std::fill(s + end, s + keys, 0.0f);
  }
}

/// Keys and values of a head that are read where they lie. Null: they are in scratch.
struct InPlace {
  HeadRows<const float> k{}, v{};
};

/// Whether they can be: a cache in FP32, whose rows few queries read. Many queries would gather the
/// same keys many times.
template <class T>
InPlace in_place(const Piece& piece, const TokenBlock& queries, HeadRows<const T> k,
                 HeadRows<const T> v) {
  if constexpr (std::is_same_v<T, float>)
    if (piece.cached && queries.rows() <= kMostFewRows)
      // A product writes whole tiles of columns, so it must be able to read them.
      return {k, piece.s.HS % kTileCols == 0 ? v : HeadRows<const float>{}};
  return {};
}

/// The scores of few queries with keys in place: the sums of Sum::Scores.
void scores_in_place(const Piece& piece, const ForwardRoom& room, int64_t rows,
                     const TokenBlock& keys, HeadRows<const float> k) {
  with_few_rows(rows, [&]<size_t M>(std::integral_constant<size_t, M>) {
    for_lane_rows(k.first, k.stride, keys.range(), [&](int64_t u, int64_t, const auto& lanes) {
      Vecs<M> score;
      score.fill(zero());
      add_products(score, room.q, room.stride, lanes, {0, piece.s.HS});
      for (size_t i = 0; i < M; ++i)
        store(score[i], room.s + static_cast<int64_t>(i) * kBlock + u - keys.row);
    });
  });
}

/// A block of queries with block `index` of the piece's keys.
void forward_block(const Piece& piece, const ForwardRoom& room, const Softmaxes& sum,
                   const TokenBlock& queries, int64_t index, const InPlace& at) {
  const TokenBlock& keys = piece.keys[static_cast<size_t>(index)];
  const int64_t HS = piece.s.HS, rows = queries.rows();
  const bool first = index == 0 || piece.keys[static_cast<size_t>(index - 1)].last;
  // Queries may begin inside a block of a cache. A product leaves nothing out of such a block.
  const bool diagonal = keys.tokens.begin == queries.tokens.begin;
  const int64_t seen = std::min(keys.rows(), queries.tokens.begin - keys.tokens.begin + 1);
  if (first) {
    std::fill(sum.m, sum.m + kBlock, -INFINITY);
    std::fill(sum.l, sum.l + kBlock, 0.0f);
  }
  if (at.k.first)
    scores_in_place(piece, room, rows, keys, at.k);
  else
    multiply<Sum::Scores>({.M = rows,
                           .N = keys.rows(),
                           .K = HS,
                           .a = room.q,
                           .a_stride = room.stride,
                           .b = room.keys(index),
                           .b_stride = across(keys.rows()),
                           .c = room.s,
                           .c_stride = kBlock,
                           .diagonal = diagonal});
  online_softmax(room, sum, rows, keys.rows(), seen, piece.scale());
  multiply<Sum::Queries>({.M = rows,
                          .N = HS,
                          .K = keys.rows(),
                          .a = room.s,
                          .a_stride = kBlock,
                          .b = at.v.first ? at.v[keys.row] : room.values(keys),
                          .b_stride = at.v.first ? at.v.stride : room.stride,
                          .c = sum.o,
                          .c_stride = room.stride,
                          .diagonal = diagonal,
                          .keep = first ? nullptr : room.alpha});
}

/// to = a and b merged, for up to kBlock queries. a has the earlier keys. `to` may be a or b.
/// Absent softmaxes, which have l = 0 and o = -0, change nothing.
void merge(const Softmaxes& to, const Softmaxes& a, const Softmaxes& b, int64_t rows, int64_t HS) {
  std::array<float, kBlock> of_a, of_b;
  for_vectors(0, rows, [&](int64_t i, auto io) {
    const Vec m_a = io.load(a.m + i), m_b = io.load(b.m + i), m = MaxOrNaN{}(m_a, m_b);
    // Where both are absent, m - m is NaN.
    const auto none = hn::Eq(m, broadcast(-INFINITY));
    const Vec from_a = hn::IfThenZeroElse(none, exp(hn::Sub(m_a, m)));
    const Vec from_b = hn::IfThenZeroElse(none, exp(hn::Sub(m_b, m)));
    const Vec l = hn::MulAdd(from_a, io.load(a.l + i), hn::Mul(from_b, io.load(b.l + i)));
    io.store(m, to.m + i);
    io.store(l, to.l + i);
    io.store(from_a, of_a.data() + i);
    io.store(from_b, of_b.data() + i);
  });
  for (int64_t i = 0; i < rows; ++i) {
    const Vec from_a = broadcast(of_a[static_cast<size_t>(i)]);
    const Vec from_b = broadcast(of_b[static_cast<size_t>(i)]);
    const float *x = a.o + i * a.stride, *y = b.o + i * b.stride;
    for_vectors(0, HS, [&](int64_t d, auto io) {
      io.store(hn::MulAdd(from_a, io.load(x + d), hn::Mul(from_b, io.load(y + d))),
               to.o + i * to.stride + d);
    });
  }
}

/// One head of one sequence. Calls finish(queries, softmaxes) for each block of queries. softmaxes
/// is null for queries that see no keys.
template <class T, class F>
void forward_head(const Piece& piece, const ForwardRoom& room, HeadRows<const T> q,
                  HeadRows<const T> k, HeadRows<const T> v, F&& finish) {
  const int64_t HS = piece.s.HS, blocks = std::ssize(piece.keys);
  const auto take = [&](int64_t i, const InPlace& at) {
    const TokenBlock& keys = piece.keys[static_cast<size_t>(i)];
    if (!at.k.first) transpose_rows(room.keys(i), k, keys, HS);
    if (!at.v.first) widen_rows(room.values(keys), room.stride, v, keys.range(), HS);
  };
  for (int64_t i = 0; i < blocks && !piece.cached; ++i) take(i, {});
  for (const TokenBlock& queries : piece.queries) {
    const InPlace at = in_place(piece, queries, k, v);
    widen_rows(room.q, room.stride, q, queries.range(), HS);
    int64_t chunks = 0;  // how many have their softmax
    const Softmaxes* total = nullptr;
    Softmaxes sum{};
    for (int64_t i = 0; i < blocks && queries.sees(piece.keys[static_cast<size_t>(i)]); ++i) {
      const TokenBlock& keys = piece.keys[static_cast<size_t>(i)];
      const bool last = i + 1 == blocks || !queries.sees(piece.keys[static_cast<size_t>(i + 1)]);
      if (piece.cached) take(i, at);
      sum = room.level(next_level(chunks));
      forward_block(piece, room, sum, queries, i, at);
      if (!keys.last && !last) continue;
      for_joined(chunks++, last,
                 [&](int level) { merge(sum, room.level(level), sum, queries.rows(), HS); });
      total = &sum;
    }
    finish(queries, total);
  }
}

/// Calls finish(b, h, queries, softmaxes) for every head of every sequence.
template <class T, class F>
void forward(const Ctx& ctx, const Piece& piece, const T* q, const T* kv, F&& finish) {
  const auto& s = piece.s;
  for_heads<ForwardRoom>(ctx, piece, s.B * s.NH, [&](int64_t task, const ForwardRoom& room) {
    const int64_t b = task / s.NH, h = task % s.NH, g = h / piece.r();
    forward_head(
        piece, room, head_rows(q, piece.at.q, s.Tq, s.HS, b, g) + h % piece.r() * s.HS,
        head_rows(kv, piece.at.k, s.Tk, s.HS, b, g), head_rows(kv, piece.at.v, s.Tk, s.HS, b, g),
        [&](const TokenBlock& queries, const Softmaxes* sum) { finish(b, h, queries, sum); });
  });
}

/// The rows of one head in out, dout or o.
template <class T>
HeadRows<T> rows_of_out(const Extents& s, T* out, int64_t b, int64_t h) {
  return head_rows(out, {s.NH, 1, 0}, s.Tq, s.HS, b, h);
}

/// The softmaxes of a head in memory, from a row on. `head` counts the heads of all sequences.
Softmaxes some_of(const Extents& s, const Tensor& o, const Tensor& m, const Tensor& l, int64_t head,
                  int64_t row) {
  const auto rows = rows_of_out(s, o.data<float>(), head / s.NH, head % s.NH);
  const int64_t at = head * s.Tq + row;
  return {rows[row], rows.stride, m.data<float>() + at, l.data<float>() + at};
}

/// Where the first query of a block lies in m, l or lse, (B,NH,Tq).
int64_t statistic(const Extents& s, int64_t b, int64_t h, const TokenBlock& queries) {
  return (b * s.NH + h) * s.Tq + queries.row;
}

/// out = o / l and lse = m + log l for some rows. lse (rows)
template <class T>
void finish_rows(HeadRows<T> out, float* lse, Range rows, const Softmaxes& sum, int64_t HS) {
  narrow_rows(out, rows, sum.o, sum.stride, HS, [&](int64_t i) { return 1.0f / sum.l[i]; });
  for (int64_t i = 0; i < rows.size(); ++i) lse[i] = sum.m[i] + math::log(sum.l[i]);
}

}  // namespace

void attention_forward(const Ctx& ctx, Tensor out, Tensor lse, Tensor qkv) {
  const Extents all = check_shapes(Op::attention_forward, out, lse, qkv);
  if (ctx.documents.borders)
    return attend_documents(
        ctx, all.B, all.T, {out, lse}, [&](const Ctx& alone, const DocumentRows& one) {
          attention_forward(alone, one.of(out), one.statistics(lse), one.of(qkv));
        });
  const Piece piece(ctx, all);
  const Extents& s = piece.s;
  dispatch(qkv, [&]<class T>(T) {
    const T* x = qkv.data<T>();
    T* y = out.data<T>();
    forward(ctx, piece, x, x,
            [&](int64_t b, int64_t h, const TokenBlock& queries, const Softmaxes* sum) {
              finish_rows(rows_of_out(s, y, b, h), lse.data<float>() + statistic(s, b, h, queries),
                          queries.range(), *sum, s.HS);
            });
  });
}

void attention_cached(const Ctx& ctx, Tensor out, Tensor qkv, Tensor cache, int64_t heads,
                      const CachedPlace& place) {
  refuse_documents(ctx, "attention_cached");
  const Piece piece(check_shapes(Op::attention_cached, out, qkv, cache, heads, place), place);
  const Extents& s = piece.s;
  dispatch(qkv, [&]<class T>(T) {
    const HeadColumns all{s.NH, 1, 0};
    forward<T>(ctx, piece, qkv.data<T>(), cache.data<T>(),
               [&](int64_t b, int64_t h, const TokenBlock& queries, const Softmaxes* sum) {
                 narrow_rows(head_rows(out.data<T>(), all, s.Tq, s.HS, b, h), queries.range(),
                             sum->o, sum->stride, s.HS,
                             [&](int64_t i) { return 1.0f / sum->l[i]; });
               });
  });
}

void attention_piece_forward(const Ctx& ctx, Tensor o, Tensor m, Tensor l, Tensor q, Tensor kv,
                             const AttentionPositions& place) {
  refuse_documents(ctx, "attention_piece_forward");
  const Piece piece(check_shapes(Op::attention_piece_forward, o, m, l, q, kv, place), place, false);
  const Extents& s = piece.s;
  const auto keep = [&](int64_t b, int64_t h, const TokenBlock& queries, const Softmaxes* sum) {
    const auto to = rows_of_out(s, o.data<float>(), b, h);
    float* to_m = m.data<float>() + statistic(s, b, h, queries);
    float* to_l = l.data<float>() + statistic(s, b, h, queries);
    if (sum == nullptr) {
      for (int64_t i = 0; i < queries.rows(); ++i) std::fill_n(to[queries.row + i], s.HS, -0.0f);
      std::fill_n(to_m, queries.rows(), -INFINITY);
      std::fill_n(to_l, queries.rows(), 0.0f);
      return;
    }
    narrow_rows(to, queries.range(), sum->o, sum->stride, s.HS, [](int64_t) { return 1.0f; });
    std::copy_n(sum->m, queries.rows(), to_m);
    std::copy_n(sum->l, queries.rows(), to_l);
  };
  dispatch(q, [&]<class T>(T) { forward<T>(ctx, piece, q.data<T>(), kv.data<T>(), keep); });
}

void attention_merge(const Ctx& ctx, Tensor o, Tensor m, Tensor l, Tensor later_o, Tensor later_m,
                     Tensor later_l) {
  const Extents s = check_shapes(Op::attention_merge, o, m, l, later_o, later_m, later_l);
  CHECK(o.dtype == Dtype::F32, "cpu merges in F32");
  const auto mine = [=](int64_t head, int64_t row) { return some_of(s, o, m, l, head, row); };
  const auto later = [=](int64_t head, int64_t row) {
    return some_of(s, later_o, later_m, later_l, head, row);
  };
  parallel_for(ctx, s.B * s.NH, 1, s.Tq * s.HS, [&](Range heads) {
    for (int64_t head = heads.begin; head < heads.end; ++head)
      for (int64_t row = 0; row < s.Tq; row += kBlock) {
        const Softmaxes sum = mine(head, row);
        merge(sum, sum, later(head, row), std::min(kBlock, s.Tq - row), s.HS);
      }
  });
}

void attention_finish(const Ctx& ctx, Tensor out, Tensor lse, Tensor o, Tensor m, Tensor l) {
  const Extents s = check_shapes(Op::attention_finish, out, lse, o, m, l);
  dispatch(out, [&]<class T>(T) {
    T* y = out.data<T>();
    parallel_for(ctx, s.B * s.NH, 1, s.Tq * s.HS, [&](Range heads) {
      for (int64_t head = heads.begin; head < heads.end; ++head)
        finish_rows(rows_of_out(s, y, head / s.NH, head % s.NH), lse.data<float>() + head * s.Tq,
                    {0, s.Tq}, some_of(s, o, m, l, head, 0), s.HS);
    });
  });
}

}  // namespace ladder::cpu
