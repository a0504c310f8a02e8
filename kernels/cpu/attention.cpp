// Causal attention in blocks of queries and keys, one head of one sequence a task: no row of
// scores is longer than a block (arXiv 2205.14135, 2307.08691).
//
// A softmax wants the largest score of its row, which is known only at the end. So a query walks
// over blocks of keys and carries what it has seen so far:
//   m   the largest score;   l = sum_u exp(S[u] - m);   o = sum_u exp(S[u] - m) v_u.
// A block with a larger score raises m to m'. All exponentials so far are then too large by one
// factor, which is made good with one product each, alpha = exp(m - m'):
//   l' = alpha l + sum_u exp(S[u] - m');   o' = alpha o + sum_u exp(S[u] - m') v_u.
// At the end out = o / l and lse = m + log l. Example: of scores 1, 3 in two blocks the first
// leaves m = 1, l = 1; the second m = 3, l = exp(1 - 3) 1 + 1, which is exp(1 - 3) + exp(3 - 3).
//
// Rescaling rounds, so bits depend on where blocks of keys begin: at multiples of kBlock tokens of
// the sequence, always. They depend neither on T nor on which queries are computed together.
//
// Backward knows lse, so P = exp(S - lse) comes out right at once, in any order. It takes one
// block of keys after another: their dk and dv gather in cache while the queries pass, and dq of
// the whole head gathers in scratch.
#include <cmath>
#include <utility>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// One head of one sequence.
struct Head {
  int64_t T, HS;
  int64_t qkv_stride;  ///< from token to token of qkv: 3 NH HS
  int64_t out_stride;  ///< of out: NH HS
  int64_t qkv;         ///< where q of token 0 lies in qkv; k and v are HS and 2 HS further
  int64_t out;         ///< where token 0 lies in out
  int64_t lse;         ///< and in lse
  float scale;         ///< 1 / sqrt(HS)
};

/// From row to row of a block with HS columns. Not a multiple of 512 bytes: then the rows would
/// compete for a few places of the L1 cache.
int64_t row_stride(int64_t HS) {
  const int64_t whole = round_up(HS, kTileCols);
  return whole % 128 == 0 ? whole + kTileCols : whole;
}

/// Deals out one thread's scratch.
class Dealer {
 public:
  explicit Dealer(float* base) : base_(base) {}
  float* take(int64_t count) {
    return base_ + std::exchange(used_, used_ + round_up(count, kAlign));
  }
  int64_t used() const { return used_; }

 private:
  float* base_;
  int64_t used_ = 0;
};

/// What forward keeps of a head: the keys transposed, block by block, and the values; and what it
/// keeps of a block of queries.
struct ForwardRoom {
  ForwardRoom(Dealer deal, int64_t T, int64_t HS) : stride(row_stride(HS)) {
    const int64_t rows = round_up(T, kBlock);
    k = deal.take(rows * HS);
    v = deal.take(rows * stride);
    q = deal.take(kBlock * stride);
    o = deal.take(kBlock * stride);
    s = deal.take(kBlock * kBlock);
    m = deal.take(kBlock);
    l = deal.take(kBlock);
    alpha = deal.take(kBlock);
    floats = deal.used();
  }

  int64_t stride, floats;
  float *k, *v;          ///< (T / kBlock, HS, kBlock), (T, stride)
  float *q, *o;          ///< (kBlock, stride)
  float* s;              ///< (kBlock, kBlock): scores, then exponentials
  float *m, *l, *alpha;  ///< (kBlock)
};

/// What backward keeps of a head, and of a block of keys.
struct BackwardRoom {
  BackwardRoom(Dealer deal, int64_t T, int64_t HS) : stride(row_stride(HS)) {
    const int64_t rows = round_up(T, kBlock);
    q = deal.take(rows * stride);
    dout = deal.take(rows * stride);
    dq = deal.take(rows * stride);
    D = deal.take(rows);
    kt = deal.take(kBlock * HS);
    vt = deal.take(kBlock * HS);
    k = deal.take(kBlock * stride);
    dk = deal.take(kBlock * stride);
    dv = deal.take(kBlock * stride);
    p = deal.take(kBlock * kBlock);
    ds = deal.take(kBlock * kBlock);
    ones = deal.take(kBlock);
    floats = deal.used();
  }

  int64_t stride, floats;
  float *q, *dout, *dq;  ///< (T, stride)
  float* D;              ///< (T): dout_t . out_t
  float *kt, *vt;        ///< (HS, kBlock): a block of keys and values, transposed
  float *k, *dk, *dv;    ///< (kBlock, stride)
  float *p, *ds;         ///< (kBlock, kBlock): scores, then P; dout v^T, then dS / sqrt(HS)
  float* ones;           ///< (kBlock): keeps all of what was summed before
};

/// Calls f(head, room) for all heads of all sequences.
template <class Room, class F>
void for_heads(const Ctx& ctx, const AttentionShape& shape, F&& f) {
  const auto [B, T, NH, HS] = shape;
  const auto room_of = [&, T = T, HS = HS](int thread) {
    return Room(Dealer(reinterpret_cast<float*>(scratch_of(ctx, thread).data())), T, HS);
  };
  const int64_t bytes = room_of(0).floats * static_cast<int64_t>(sizeof(float));
  if (bytes > ctx.scratch.dim(1))
    throw OutOfMemory(fmt::format(
        "attention takes {} bytes of scratch for a head of {} tokens and {} channels, and there "
        "are {}; more heads are smaller ones",
        bytes, T, HS, ctx.scratch.dim(1)));
  const int64_t tasks = B * NH;
  const int64_t threads = std::min<int64_t>(ctx.threads, tasks);
  on_threads(ctx, [&, T = T, NH = NH, HS = HS](int thread) {
    if (thread >= threads) return;
    const Room room = room_of(thread);
    const Range mine = leaf(thread, threads, tasks);
    for (int64_t task = mine.begin; task < mine.end; ++task) {
      const int64_t b = task / NH;
      const int64_t h = task % NH;
      f(Head{.T = T,
             .HS = HS,
             .qkv_stride = 3 * NH * HS,
             .out_stride = NH * HS,
             .qkv = b * T * 3 * NH * HS + 3 * h * HS,
             .out = b * T * NH * HS + h * HS,
             .lse = task * T,
             .scale = 1.0f / std::sqrt(static_cast<float>(HS))},
        room);
    }
  });
}

/// Calls f(range) on the blocks of [begin, T).
template <class F>
void for_blocks(int64_t begin, int64_t T, F&& f) {
  for (; begin < T; begin += kBlock) f(Range{begin, std::min(T, begin + kBlock)});
}

/// HS columns of some rows into scratch, padded with zeros to whole tiles.
template <class T>
void widen_rows(float* to, int64_t stride, const T* from, int64_t from_stride, int64_t rows,
                int64_t HS) {
  for (int64_t row = 0; row < rows; ++row, to += stride, from += from_stride) {
    for_vectors(0, HS, [&](int64_t i, auto io) { store(io.load(from + i), to + i); });
    std::fill(to + round_up(HS, kLanes), to + stride, 0.0f);
  }
  std::fill(to, to + (round_up(rows, kTileRows) - rows) * stride, 0.0f);
}

/// Back from scratch, each row times factor(row), rounded to T.
template <class T, class F>
void narrow_rows(T* to, int64_t to_stride, const float* from, int64_t stride, int64_t rows,
                 int64_t HS, F&& factor) {
  for (int64_t row = 0; row < rows; ++row, to += to_stride, from += stride) {
    const Vec by = broadcast(factor(row));
    for_vectors(0, HS, [&](int64_t i, auto io) { io.store(hn::Mul(load(from + i), by), to + i); });
  }
}

/// A block of keys (or values) transposed, (HS, kBlock). Columns past the end repeat the last:
/// what comes of them is never used.
template <class T>
void transpose_rows(float* to, const T* from, const Head& head, Range keys) {
  const Factor factor{.ptr = from, .dtype = dtype_of<T>, .stride_i = head.qkv_stride};
  pack_transposed<kBlock, T>(to, factor, keys.begin, keys.end, {0, head.HS});
}

/// Keys of a block of `keys` that row `row` of a block of queries sees.
int64_t seen(int64_t row, int64_t keys, bool diagonal) { return diagonal ? row + 1 : keys; }

/// The scores of a block to exp(S - m), 0 where a query must not look; m, l and alpha with them.
void online_softmax(const ForwardRoom& room, int64_t rows, int64_t keys, bool diagonal,
                    float scale) {
  for (int64_t i = 0; i < rows; ++i) {
    const float largest = lane_max(room.s + i * kBlock, seen(i, keys, diagonal)) * scale;
    room.alpha[i] = std::exchange(room.m[i], larger(room.m[i], largest));
  }
  for_vectors(0, rows, [&](int64_t i, auto io) {
    io.store(exp(hn::Sub(io.load(room.alpha + i), io.load(room.m + i))), room.alpha + i);
  });
  for (int64_t i = 0; i < rows; ++i) {
    float* s = room.s + i * kBlock;
    const int64_t end = seen(i, keys, diagonal);
    const Vec m = broadcast(room.m[i]);
    const float sum = lane_sum(end, [&](int64_t u, auto io) {
      const Vec e = io.only(exp(hn::MulSub(io.load(s + u), broadcast(scale), m)));
      io.store(e, s + u);
      return e;
    });
    room.l[i] = room.alpha[i] * room.l[i] + sum;
    std::fill(s + end, s + keys, 0.0f);
  }
}

/// One head of one sequence. out (B,T,NH*HS); lse (B,NH,T); qkv (B,T,3*NH*HS)
template <class T>
void forward_head(const Head& head, const ForwardRoom& room, T* out, float* lse, const T* qkv) {
  const int64_t tokens = head.T, HS = head.HS;
  const int64_t stride = room.stride;
  const T* q = qkv + head.qkv;
  for_blocks(0, tokens,
             [&](Range keys) { transpose_rows(room.k + keys.begin * HS, q + HS, head, keys); });
  widen_rows(room.v, stride, q + 2 * HS, head.qkv_stride, tokens, HS);
  for_blocks(0, tokens, [&](Range queries) {
    const int64_t rows = queries.size();
    widen_rows(room.q, stride, q + queries.begin * head.qkv_stride, head.qkv_stride, rows, HS);
    std::fill(room.m, room.m + kBlock, -INFINITY);
    std::fill(room.l, room.l + kBlock, 0.0f);
    std::fill(room.alpha, room.alpha + kBlock, 0.0f);
    for_blocks(0, queries.end, [&](Range keys) {
      const bool diagonal = keys.begin == queries.begin;
      multiply<Sum::Scores>({.M = rows,
                             .N = keys.size(),
                             .K = HS,
                             .a = room.q,
                             .a_stride = stride,
                             .b = room.k + keys.begin * HS,
                             .b_stride = kBlock,
                             .c = room.s,
                             .c_stride = kBlock,
                             .diagonal = diagonal});
      online_softmax(room, rows, keys.size(), diagonal, head.scale);
      multiply<Sum::Queries>({.M = rows,
                              .N = HS,
                              .K = keys.size(),
                              .a = room.s,
                              .a_stride = kBlock,
                              .b = room.v + keys.begin * stride,
                              .b_stride = stride,
                              .c = room.o,
                              .c_stride = stride,
                              .diagonal = diagonal,
                              .keep = keys.begin == 0 ? nullptr : room.alpha});
    });
    narrow_rows(out + head.out + queries.begin * head.out_stride, head.out_stride, room.o, stride,
                rows, HS, [&](int64_t i) { return 1.0f / room.l[i]; });
    for (int64_t i = 0; i < rows; ++i)
      lse[head.lse + queries.begin + i] = room.m[i] + std::log(room.l[i]);
  });
}

/// P of a block from its scores, and dS / sqrt(HS) = P (dout v^T - D) / sqrt(HS) from dout v^T.
void softmax_backward(const BackwardRoom& room, Range queries, int64_t keys, bool diagonal,
                      const float* lse, float scale) {
  for (int64_t i = 0; i < queries.size(); ++i) {
    float* p = room.p + i * kBlock;
    float* ds = room.ds + i * kBlock;
    const int64_t end = seen(i, keys, diagonal);
    const Vec row_lse = broadcast(lse[queries.begin + i]);
    const Vec D = broadcast(room.D[queries.begin + i]);
    for_vectors(0, end, [&](int64_t u, auto io) {
      const Vec prob = exp(hn::MulSub(io.load(p + u), broadcast(scale), row_lse));
      io.store(prob, p + u);
      const Vec slope = hn::Mul(prob, hn::Sub(io.load(ds + u), D));
      io.store(hn::Mul(slope, broadcast(scale)), ds + u);
    });
    std::fill(p + end, p + keys, 0.0f);
    std::fill(ds + end, ds + keys, 0.0f);
  }
}

/// One block of queries against one of keys: P and dS, and what they add to dq, dk and dv.
void backward_block(const Head& head, const BackwardRoom& room, Range queries, Range keys,
                    const float* lse) {
  const int64_t stride = room.stride;
  const bool diagonal = keys.begin == queries.begin;
  const float* q = room.q + queries.begin * stride;
  const float* dout = room.dout + queries.begin * stride;
  BlockProduct scores{.M = queries.size(),
                      .N = keys.size(),
                      .K = head.HS,
                      .a = q,
                      .a_stride = stride,
                      .b = room.kt,
                      .b_stride = kBlock,
                      .c = room.p,
                      .c_stride = kBlock,
                      .diagonal = diagonal};
  multiply<Sum::Scores>(scores);
  scores.a = dout;
  scores.b = room.vt;
  scores.c = room.ds;
  multiply<Sum::Scores>(scores);
  softmax_backward(room, queries, keys.size(), diagonal, lse, head.scale);
  multiply<Sum::Queries>({.M = queries.size(),
                          .N = head.HS,
                          .K = keys.size(),
                          .a = room.ds,
                          .a_stride = kBlock,
                          .b = room.k,
                          .b_stride = stride,
                          .c = room.dq + queries.begin * stride,
                          .c_stride = stride,
                          .diagonal = diagonal,
                          .keep = keys.begin == 0 ? nullptr : room.ones});
  BlockProduct spread{.M = keys.size(),
                      .N = head.HS,
                      .K = queries.size(),
                      .a = room.ds,
                      .a_stride = kBlock,
                      .b = q,
                      .b_stride = stride,
                      .c = room.dk,
                      .c_stride = stride,
                      .diagonal = diagonal,
                      .keep = diagonal ? nullptr : room.ones};
  multiply<Sum::Keys>(spread);
  spread.a = room.p;
  spread.b = dout;
  spread.c = room.dv;
  multiply<Sum::Keys>(spread);
}

/// One head of one sequence. dqkv, qkv (B,T,3*NH*HS); dout, out (B,T,NH*HS); lse (B,NH,T)
template <class T>
void backward_head(const Head& head, const BackwardRoom& room, T* dqkv, const T* dout, const T* qkv,
                   const T* out, const float* lse) {
  const int64_t tokens = head.T, HS = head.HS;
  const int64_t stride = room.stride;
  const T* q = qkv + head.qkv;
  T* dq = dqkv + head.qkv;
  const auto one = [](int64_t) { return 1.0f; };
  std::fill(room.ones, room.ones + kBlock, 1.0f);
  widen_rows(room.q, stride, q, head.qkv_stride, tokens, HS);
  widen_rows(room.dout, stride, dout + head.out, head.out_stride, tokens, HS);
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t at = head.out + t * head.out_stride;
    room.D[t] = lane_sum(HS, [&](int64_t i, auto io) {
      return hn::Mul(io.load(out + at + i), io.load(dout + at + i));
    });
  }
  for_blocks(0, tokens, [&](Range keys) {
    const int64_t k = keys.begin * head.qkv_stride + HS;
    const int64_t v = k + HS;
    transpose_rows(room.kt, q + HS, head, keys);
    transpose_rows(room.vt, q + 2 * HS, head, keys);
    widen_rows(room.k, stride, q + k, head.qkv_stride, keys.size(), HS);
    for_blocks(keys.begin, tokens,
               [&](Range queries) { backward_block(head, room, queries, keys, lse + head.lse); });
    narrow_rows(dq + k, head.qkv_stride, room.dk, stride, keys.size(), HS, one);
    narrow_rows(dq + v, head.qkv_stride, room.dv, stride, keys.size(), HS, one);
  });
  narrow_rows(dq, head.qkv_stride, room.dq, stride, tokens, HS, one);
}

}  // namespace

void attention_forward(const Ctx& ctx, Tensor out, Tensor lse, Tensor qkv) {
  const AttentionShape shape = check_attention_forward(out, lse, qkv);
  dispatch(qkv, [&]<class T>(T) {
    T* y = out.data<T>();
    const T* x = qkv.data<T>();
    for_heads<ForwardRoom>(ctx, shape, [&](const Head& head, const ForwardRoom& room) {
      forward_head(head, room, y, lse.data<float>(), x);
    });
  });
}

void attention_backward(const Ctx& ctx, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                        Tensor lse) {
  const AttentionShape shape = check_attention_backward(dqkv, dout, qkv, out, lse);
  dispatch(qkv, [&]<class T>(T) {
    const T* x = qkv.data<T>();
    const T* y = out.data<T>();
    const T* dy = dout.data<T>();
    for_heads<BackwardRoom>(ctx, shape, [&](const Head& head, const BackwardRoom& room) {
      backward_head(head, room, dqkv.data<T>(), dy, x, y, lse.data<float>());
    });
  });
}

}  // namespace ladder::cpu
