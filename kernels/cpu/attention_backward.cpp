// Causal attention, backward (arXiv 2205.14135, 2307.08691). A task is one sequence and the heads
// that share a key-value head.
//
// Backward knows lse, so it can compute P = exp(S - lse) at once, in any order. It takes one block
// of keys after another. dk and dv of the block add up in the cache while all queries pass; dq of
// all queries adds up in scratch.
//
// All three are sums over tokens, as trees: see token_leaves.h. dq has a leaf for each chunk of
// keys, and the blocks of keys come in that order. dk and dv have a leaf for each pair of chunks of
// queries, so the queries pass in the order of folded leaves. Within a leaf, a sum is one chain:
// the products below continue from what earlier blocks left (BlockProduct::keep). So bits do not
// depend on where blocks end.
#include <span>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/table.h"
#include "kernels/documents.h"

namespace ladder::cpu {
namespace {

/// The folded leaf of a chunk.
int64_t leaf_of(int64_t chunk, int64_t chunks) { return std::min(chunk, chunks - 1 - chunk); }

/// The blocks of queries of one folded leaf, in the order of its sum.
using Leaf = std::span<const TokenBlock>;

/// The queries of a piece in the order of folded leaves: leaf 0, leaf 1, ...
std::vector<TokenBlock> folded(const Piece& piece) {
  const int64_t chunks = key_chunks(piece.T);
  std::vector<TokenBlock> blocks = piece.queries;
  std::ranges::stable_sort(blocks, {},
                           [&](const TokenBlock& block) { return leaf_of(block.chunk, chunks); });
  return blocks;
}

/// Of each leaf, those queries that see the keys of a block. Leaves without any are absent. In a
/// whole sequence the absent leaves are the last ones. In a document with chunk_length they are
/// also the first ones, whose late chunk the document does not reach.
struct Leaves {
  std::array<Leaf, kMostLeaves> leaf;
  std::array<int64_t, kMostLeaves> index;  ///< in the tree
  int64_t count = 0;

  Leaves(std::span<const TokenBlock> folded, const TokenBlock& keys, int64_t chunks) {
    for (size_t begin = 0, end; begin < folded.size(); begin = end) {
      const auto here = [&](size_t i) { return leaf_of(folded[i].chunk, chunks); };
      for (end = begin; end < folded.size() && here(end) == here(begin);) ++end;
      size_t first = begin;
      while (first < end && !folded[first].sees(keys)) ++first;
      if (first == end) continue;
      index[static_cast<size_t>(count)] = here(begin);
      leaf[static_cast<size_t>(count++)] = folded.subspan(first, end - first);
    }
  }
  /// The level on which the sum of the i-th leaf waits: that of the subtree which it shares with
  /// the next one, or the highest.
  int level(int64_t i, int64_t leaves) const {
    const auto bits = [](int64_t x) {
      return static_cast<int>(std::bit_width(static_cast<uint64_t>(x)));
    };
    const auto at = static_cast<size_t>(i);
    return i + 1 == count ? bits(leaves - 1) : bits(index[at] ^ index[at + 1]) - 1;
  }
};

/// The scratch of backward: what it keeps of the heads of a group, and of a block of keys.
struct BackwardRoom {
  BackwardRoom(Dealer deal, const Piece& piece)
      : stride(row_stride(piece.s.HS)), rows(padded_rows(piece.queries)) {
    const int64_t r = piece.r(), HS = piece.s.HS;
    q = deal.take(r * rows * stride);
    dout = deal.take(r * rows * stride);
    dq = deal.take(levels(key_chunks(piece.T)) * r * rows * stride);
    D = deal.take(r * rows);
    kt = deal.take(kBlock * HS);
    vt = deal.take(kBlock * HS);
    k = deal.take(kBlock * stride);
    dk = deal.take(levels(query_leaves(piece.T)) * kBlock * stride);
    dv = deal.take(levels(query_leaves(piece.T)) * kBlock * stride);
    p = deal.take(kBlock * kBlock);
    ds = deal.take(kBlock * kBlock);
    ones = deal.take(kBlock);
    dq_level = r * rows * stride;
    floats = deal.used();
  }
  /// Where the rows of a head and a block lie in q, in dout and in each level of dq.
  int64_t at(int64_t head, const TokenBlock& queries) const {
    return (head * rows + queries.padded) * stride;
  }

  int64_t stride, rows, dq_level = 0, floats = 0;
  float *q, *dout;  ///< (r, rows, stride)
  float* dq;        ///< the same for each level
  float* D;         ///< (r, rows): dout_t . out_t
  float *kt, *vt;   ///< (HS, kBlock): a block of keys and values, transposed
  float* k;         ///< (kBlock, stride)
  float *dk, *dv;   ///< the same for each level
  float *p, *ds;    ///< (kBlock, kBlock): scores, then P; dout v^T, then dS / sqrt(HS)
  float* ones;      ///< (kBlock): to keep all of an earlier sum
};

/// The tensors of a task: rows of the first of r query heads, and of the heads that these share.
template <class T, class Real>
struct Operands {
  HeadRows<const T> q, dout, out;
  HeadRows<Real> dq;
  HeadRows<const T> k, v;
  HeadRows<Real> dk, dv;
  const float* lse;  ///< (r, Tq)
};

/// D = dout_t . out_t of a block of queries, summed as multiply() sums dout v^T. Then, where one
/// key has all the weight, out is its v and dout v^T - D is exactly 0. Another order would leave a
/// rounding error, which large keys would magnify. kt and vt hold no keys or values yet.
template <class T>
void dots_of_rows(const BackwardRoom& room, float* D, HeadRows<const T> dout, HeadRows<const T> out,
                  const TokenBlock& queries, int64_t HS) {
  transpose_rows(room.kt, dout, queries, HS);
  transpose_rows(room.vt, out, queries, HS);
  const int64_t stride = across(queries.rows());
  for_vectors(0, queries.rows(), [&](int64_t i, auto io) {
    Vec sum = zero();
    for (int64_t d = 0; d < HS; ++d)
      sum = hn::MulAdd(load(room.kt + d * stride + i), load(room.vt + d * stride + i), sum);
    io.store(sum, D + i);
  });
}

/// Turns scores into P, and dout v^T into dS / sqrt(HS) = P (dout v^T - D) / sqrt(HS). As in
/// forward, products are rounded before lse is subtracted, which is at least as large.
void softmax_backward(const BackwardRoom& room, int64_t rows, int64_t keys, bool diagonal,
                      const float* lse, const float* D, float scale) {
  for (int64_t i = 0; i < rows; ++i) {
    float* p = room.p + i * kBlock;
    float* ds = room.ds + i * kBlock;
    const int64_t end = seen(i, keys, diagonal);
    const Vec row_lse = broadcast(lse[i]);
    const Vec row_D = broadcast(D[i]);
    for_vectors(0, end, [&](int64_t u, auto io) {
      const Vec score = hn::Mul(io.load(p + u), broadcast(scale));
      const Vec prob = exp(hn::Sub(score, row_lse));
      io.store(prob, p + u);
      const Vec slope = hn::Mul(prob, hn::Sub(io.load(ds + u), row_D));
      io.store(hn::Mul(slope, broadcast(scale)), ds + u);
    });
    std::fill(p + end, p + keys, 0.0f);
    std::fill(ds + end, ds + keys, 0.0f);
  }
}

/// P and dS for one head, one block of queries and one block of keys.
void weights_of(const Piece& piece, const BackwardRoom& room, int64_t head,
                const TokenBlock& queries, const TokenBlock& keys, const float* lse) {
  const bool diagonal = keys.tokens.begin == queries.tokens.begin;
  BlockProduct scores{.M = queries.rows(),
                      .N = keys.rows(),
                      .K = piece.s.HS,
                      .a = room.q + room.at(head, queries),
                      .a_stride = room.stride,
                      .b = room.kt,
                      .b_stride = across(keys.rows()),
                      .c = room.p,
                      .c_stride = kBlock,
                      .diagonal = diagonal};
  multiply<Sum::Scores>(scores);
  scores.a = room.dout + room.at(head, queries);
  scores.b = room.vt;
  scores.c = room.ds;
  multiply<Sum::Scores>(scores);
  softmax_backward(room, queries.rows(), keys.rows(), diagonal,
                   lse + head * piece.s.Tq + queries.row,
                   room.D + head * room.rows + queries.padded, piece.scale());
}

/// Adds the terms of P and dS to dk and dv. `first`: they are the first of their leaf, which lies
/// at `level`.
void add_to_keys(const Piece& piece, const BackwardRoom& room, int64_t head,
                 const TokenBlock& queries, const TokenBlock& keys, bool first, int level) {
  const int64_t stride = room.stride;
  BlockProduct product{.M = keys.rows(),
                       .N = piece.s.HS,
                       .K = queries.rows(),
                       .a = room.ds,
                       .a_stride = kBlock,
                       .b = room.q + room.at(head, queries),
                       .b_stride = stride,
                       .c = room.dk + level * kBlock * stride,
                       .c_stride = stride,
                       .diagonal = keys.tokens.begin == queries.tokens.begin,
                       .keep = first ? nullptr : room.ones};
  multiply<Sum::Keys>(product);
  product.a = room.p;
  product.b = room.dout + room.at(head, queries);
  product.c = room.dv + level * kBlock * stride;
  multiply<Sum::Keys>(product);
}

/// to = earlier + to, both (rows, stride).
void join(float* to, const float* earlier, int64_t rows, int64_t stride) {
  for_vectors(0, rows * stride, [&](int64_t i, auto io) {
    io.store(hn::Add(io.load(earlier + i), io.load(to + i)), to + i);
  });
}

/// Adds the terms of dS to dq of the queries, for keys of block `index`. Returns where dq lies if
/// it is then complete, otherwise null.
float* add_to_queries(const Piece& piece, const BackwardRoom& room, int64_t head,
                      const TokenBlock& queries, size_t index) {
  const TokenBlock& keys = piece.keys[index];
  const int64_t stride = room.stride, chunks = keys.chunk - piece.keys[0].chunk;
  const bool diagonal = keys.tokens.begin == queries.tokens.begin;
  const bool all = diagonal || index + 1 == piece.keys.size();
  float* at = room.dq + room.at(head, queries);
  float* dq = at + next_level(chunks) * room.dq_level;
  const bool first = index == 0 || piece.keys[index - 1].last;
  multiply<Sum::Queries>({.M = queries.rows(),
                          .N = piece.s.HS,
                          .K = keys.rows(),
                          .a = room.ds,
                          .a_stride = kBlock,
                          .b = room.k,
                          .b_stride = stride,
                          .c = dq,
                          .c_stride = stride,
                          .diagonal = diagonal,
                          .keep = first ? nullptr : room.ones});
  if (keys.last || all)
    for_joined(chunks, all,
               [&](int level) { join(dq, at + level * room.dq_level, queries.rows(), stride); });
  return all ? dq : nullptr;
}

template <class Real>
void write(HeadRows<Real> to, const TokenBlock& block, const float* from, int64_t stride,
           int64_t HS) {
  narrow_rows(to, block.range(), from, stride, HS, [](int64_t) { return 1.0f; });
}

/// Writes sums of no terms.
template <class Real>
void write_empty(HeadRows<Real> to, const TokenBlock& block, int64_t HS) {
  for (int64_t row = block.row; row < block.row + block.rows(); ++row)
    for_vectors(0, HS, [&](int64_t d, auto io) { io.store(broadcast(-0.0f), to[row] + d); });
}

/// One block of keys with all queries that see it.
template <class T, class Real>
void backward_keys(const Piece& piece, const BackwardRoom& room, std::span<const TokenBlock> folded,
                   size_t index, const Operands<T, Real>& x) {
  const TokenBlock& keys = piece.keys[index];
  const int64_t HS = piece.s.HS, stride = room.stride;
  transpose_rows(room.kt, x.k, keys, HS);
  transpose_rows(room.vt, x.v, keys, HS);
  widen_rows(room.k, stride, x.k, keys.range(), HS);
  const Leaves leaves(folded, keys, key_chunks(piece.T));
  if (leaves.count == 0) {
    write_empty(x.dk, keys, HS);
    write_empty(x.dv, keys, HS);
    return;
  }
  int level = 0;
  uint64_t waiting = 0;  // which levels have a sum
  for (int64_t i = 0; i < leaves.count; ++i) {
    level = leaves.level(i, query_leaves(piece.T));
    bool first = true;
    for (int64_t head = 0; head < piece.r(); ++head)
      for (const TokenBlock& queries : leaves.leaf[static_cast<size_t>(i)]) {
        weights_of(piece, room, head, queries, keys, x.lse);
        add_to_keys(piece, room, head, queries, keys, std::exchange(first, false), level);
        if (const float* dq = add_to_queries(piece, room, head, queries, index))
          write(x.dq + head * HS, queries, dq, stride, HS);
      }
    for (int other = 0; other < level; ++other)
      for (float* sum : {room.dk, room.dv})
        if (waiting >> other & 1)
          join(sum + level * kBlock * stride, sum + other * kBlock * stride, keys.rows(), stride);
    waiting = (waiting >> level | 1) << level;
  }
  write(x.dk, keys, room.dk + level * kBlock * stride, stride, HS);
  write(x.dv, keys, room.dv + level * kBlock * stride, stride, HS);
}

/// All heads of one group in one sequence.
template <class T, class Real>
void backward_group(const Piece& piece, const BackwardRoom& room,
                    std::span<const TokenBlock> folded, const Operands<T, Real>& x) {
  const int64_t HS = piece.s.HS;
  std::fill(room.ones, room.ones + kBlock, 1.0f);
  for (int64_t head = 0; head < piece.r(); ++head)
    for (const TokenBlock& queries : piece.queries) {
      const int64_t at = room.at(head, queries), h = head * HS;
      widen_rows(room.q + at, room.stride, x.q + h, queries.range(), HS);
      widen_rows(room.dout + at, room.stride, x.dout + h, queries.range(), HS);
      dots_of_rows(room, room.D + head * room.rows + queries.padded, x.dout + h, x.out + h, queries,
                   HS);
      if (!queries.sees(piece.keys[0])) write_empty(x.dq + h, queries, HS);
    }
  for (size_t i = 0; i < piece.keys.size(); ++i) backward_keys(piece, room, folded, i, x);
}

/// Backward of a piece. dq may be dkv, and q may be kv.
template <class T, class Real>
void backward(const Ctx& ctx, const Piece& piece, Real* dq, Real* dkv, const T* dout, const T* q,
              const T* kv, const T* out, const float* lse) {
  const Extents& s = piece.s;
  const std::vector<TokenBlock> blocks = folded(piece);
  for_heads<BackwardRoom>(ctx, piece, s.B * s.NKV, [&](int64_t task, const BackwardRoom& room) {
    const int64_t b = task / s.NKV, g = task % s.NKV;
    const auto of_queries = [&](auto* base, const HeadColumns& columns) {
      return head_rows(base, columns, s.Tq, s.HS, b, g);
    };
    const auto of_keys = [&](auto* base, const HeadColumns& columns) {
      return head_rows(base, columns, s.Tk, s.HS, b, g);
    };
    const Operands<T, Real> x{.q = of_queries(q, piece.at.q),
                              .dout = of_queries(dout, piece.of_out()),
                              .out = of_queries(out, piece.of_out()),
                              .dq = of_queries(dq, piece.at.q),
                              .k = of_keys(kv, piece.at.k),
                              .v = of_keys(kv, piece.at.v),
                              .dk = of_keys(dkv, piece.at.k),
                              .dv = of_keys(dkv, piece.at.v),
                              .lse = lse + task * piece.r() * s.Tq};
    backward_group(piece, room, blocks, x);
  });
}

}  // namespace

void attention_backward(const Ctx& ctx, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                        Tensor lse) {
  const Extents all = check_shapes(Op::attention_backward, dqkv, dout, qkv, out, lse);
  if (ctx.documents.borders)
    return attend_documents(ctx, all.B, all.T, {dqkv},
                            [&](const Ctx& alone, const DocumentRows& one) {
                              attention_backward(alone, one.of(dqkv), one.of(dout), one.of(qkv),
                                                 one.of(out), one.statistics(lse));
                            });
  const Piece piece(ctx, all);
  dispatch(qkv, [&]<class T>(T) {
    const T* x = qkv.data<T>();
    T* dx = dqkv.data<T>();
    backward<T>(ctx, piece, dx, dx, dout.data<T>(), x, x, out.data<T>(), lse.data<float>());
  });
}

void attention_piece_backward(const Ctx& ctx, Tensor dq, Tensor dkv, Tensor dout, Tensor q,
                              Tensor kv, Tensor out, Tensor lse, const AttentionPositions& place) {
  const Piece piece(
      check_shapes(Op::attention_piece_backward, dq, dkv, dout, q, kv, out, lse, place), place,
      false);
  dispatch(q, [&]<class T>(T) {
    backward<T>(ctx, piece, dq.data<float>(), dkv.data<float>(), dout.data<T>(), q.data<T>(),
                kv.data<T>(), out.data<T>(), lse.data<float>());
  });
}

}  // namespace ladder::cpu
