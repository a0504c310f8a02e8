// Causal attention, one head of one sequence a task, a block of queries at a time: the scores of
// a block against all keys before it lie in scratch, never a matrix of T x T.
// Backward computes the probabilities again from lse (arXiv 2205.14135).
#include <cmath>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// Queries of a block.
constexpr int64_t kQueries = 64;

/// One head of one sequence. q, k, v and their gradients are rows `stride` apart.
struct Head {
  int64_t T, HS;
  int64_t stride;      ///< of qkv: 3 NH HS
  int64_t out_stride;  ///< of out: NH HS
  const float *q, *k, *v;
  float scale;  ///< 1 / sqrt(HS)
};

/// The scratch of a thread: two blocks of scores, and what the products need.
struct Room {
  int64_t stride;  ///< from one row of scores to the next
  float *p, *ds;   ///< (kQueries, stride)
  std::span<std::byte> gemm;
};

int64_t score_stride(int64_t T) { return round_up(T, kSumLanes); }

Room room_of(const Ctx& ctx, int thread, int64_t T) {
  const std::span<std::byte> all = scratch_of(ctx, thread);
  const int64_t stride = score_stride(T);
  const auto bytes = static_cast<size_t>(kQueries * stride) * sizeof(float);
  return {.stride = stride,
          .p = reinterpret_cast<float*>(all.data()),
          .ds = reinterpret_cast<float*>(all.data() + bytes),
          .gemm = all.subspan(2 * bytes)};
}

/// Calls f(head, b, h, room) for all heads of all sequences.
template <class F>
void for_heads(const Ctx& ctx, const AttentionShape& shape, const float* qkv, F&& f) {
  const auto [B, T, NH, HS] = shape;
  const int64_t bytes = 2 * kQueries * score_stride(T) * static_cast<int64_t>(sizeof(float));
  CHECK(bytes + kGemmScratch <= ctx.scratch.dim(1), "scores of {} keys in a scratch of {} bytes", T,
        ctx.scratch.dim(1));
  const int64_t tasks = B * NH;
  const int64_t threads = std::min<int64_t>(ctx.threads, tasks);
  on_threads(ctx, [&, T = T, NH = NH, HS = HS](int thread) {
    if (thread >= threads) return;
    const Room room = room_of(ctx, thread, T);
    const Range mine = leaf(thread, threads, tasks);
    for (int64_t task = mine.begin; task < mine.end; ++task) {
      const int64_t b = task / NH;
      const int64_t h = task % NH;
      const int64_t stride = 3 * NH * HS;
      const float* q = qkv + b * T * stride + 3 * h * HS;
      f(Head{.T = T,
             .HS = HS,
             .stride = stride,
             .out_stride = NH * HS,
             .q = q,
             .k = q + HS,
             .v = q + 2 * HS,
             .scale = 1.0f / std::sqrt(static_cast<float>(HS))},
        b, h, room);
    }
  });
}

/// scores[t,u] = a[t] . b[u] over the channels of a head, for the queries and all keys before
/// the last of them.
void scores(float* to, const Room& room, const Head& head, Range queries, const float* a,
            int64_t a_stride, const float* b) {
  gemm_serial({.M = queries.size(),
               .N = queries.end,
               .K = head.HS,
               .a = {.ptr = a + queries.begin * a_stride, .stride_i = a_stride, .stride_k = 1},
               .b = {.ptr = b, .stride_i = head.stride, .stride_k = 1},
               .c = to,
               .stride_c = room.stride},
              room.gemm);
}

/// rows[t,:] = sum_u p[t,u] from[u,:]
void mix(float* rows, int64_t stride, const float* p, const Room& room, const Head& head,
         Range queries, const float* from) {
  gemm_serial({.M = queries.size(),
               .N = head.HS,
               .K = queries.end,
               .a = {.ptr = p, .stride_i = room.stride, .stride_k = 1},
               .b = {.ptr = from, .stride_i = 1, .stride_k = head.stride},
               .c = rows + queries.begin * stride,
               .stride_c = stride},
              room.gemm);
}

/// keys[u,:] += sum_t p[t,u] from[t,:]
void spread(float* keys, const float* p, const Room& room, const Head& head, Range queries,
            const float* from, int64_t stride) {
  gemm_serial({.M = queries.end,
               .N = head.HS,
               .K = queries.size(),
               .a = {.ptr = p, .stride_i = 1, .stride_k = room.stride},
               .b = {.ptr = from + queries.begin * stride, .stride_i = 1, .stride_k = stride},
               .c = keys,
               .stride_c = head.stride,
               .into = Into::Add},
              room.gemm);
}

/// Scores of one query to probabilities, in place; keys it must not see get 0. Returns lse.
float softmax(float* s, int64_t seen, int64_t end, float scale) {
  const float m = lane_max(s, seen) * scale;
  const float sum = lane_sum(seen, [&](int64_t u, auto io) {
    const Vec e = io.only(exp(hn::MulSub(io.load(s + u), broadcast(scale), broadcast(m))));
    io.store(e, s + u);
    return e;
  });
  const Vec inverse = broadcast(1.0f / sum);
  for_vectors(0, seen,
              [&](int64_t u, auto io) { io.store(hn::Mul(io.load(s + u), inverse), s + u); });
  std::fill(s + seen, s + end, 0.0f);
  return m + std::log(sum);
}

/// One query's row of dS = P (dP - D) scale, and P itself from its scores; in place of both.
void softmax_backward(float* p, float* ds, int64_t seen, int64_t end, float lse, float d,
                      float scale) {
  for_vectors(0, seen, [&](int64_t u, auto io) {
    const Vec prob = exp(hn::MulSub(io.load(p + u), broadcast(scale), broadcast(lse)));
    io.store(prob, p + u);
    const Vec slope = hn::Mul(prob, hn::Sub(io.load(ds + u), broadcast(d)));
    io.store(hn::Mul(slope, broadcast(scale)), ds + u);
  });
  std::fill(p + seen, p + end, 0.0f);
  std::fill(ds + seen, ds + end, 0.0f);
}

}  // namespace

void attention_forward(const Ctx& ctx, Tensor out, Tensor lse, Tensor qkv) {
  const AttentionShape shape = check_attention_forward(out, lse, qkv);
  float* lse0 = lse.data<float>();
  float* out0 = out.data<float>();
  const auto one_head = [&](const Head& head, int64_t b, int64_t h, const Room& room) {
    float* y = out0 + b * head.T * head.out_stride + h * head.HS;
    for (int64_t first = 0; first < head.T; first += kQueries) {
      const Range queries{first, std::min(head.T, first + kQueries)};
      scores(room.p, room, head, queries, head.q, head.stride, head.k);
      for (int64_t t = first; t < queries.end; ++t)
        lse0[(b * shape.NH + h) * head.T + t] =
            softmax(room.p + (t - first) * room.stride, t + 1, queries.end, head.scale);
      mix(y, head.out_stride, room.p, room, head, queries, head.v);
    }
  };
  for_heads(ctx, shape, qkv.data<float>(), one_head);
}

void attention_backward(const Ctx& ctx, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                        Tensor lse) {
  const AttentionShape shape = check_attention_backward(dqkv, dout, qkv, out, lse);
  const float* qkv0 = qkv.data<float>();
  const float* lse0 = lse.data<float>();
  const float* out0 = out.data<float>();
  const float* dout0 = dout.data<float>();
  float* dqkv0 = dqkv.data<float>();
  const auto one_head = [&](const Head& head, int64_t b, int64_t h, const Room& room) {
    const int64_t at = b * head.T * head.out_stride + h * head.HS;
    const float* y = out0 + at;
    const float* dy = dout0 + at;
    float* dq = dqkv0 + (head.q - qkv0);
    float* dk = dq + head.HS;
    float* dv = dk + head.HS;
    for (int64_t t = 0; t < head.T; ++t)  // dk and dv
      std::fill(dk + t * head.stride, dk + t * head.stride + 2 * head.HS, 0.0f);
    for (int64_t first = 0; first < head.T; first += kQueries) {
      const Range queries{first, std::min(head.T, first + kQueries)};
      scores(room.p, room, head, queries, head.q, head.stride, head.k);
      scores(room.ds, room, head, queries, dy, head.out_stride, head.v);
      for (int64_t t = first; t < queries.end; ++t) {
        const float* yt = y + t * head.out_stride;
        const float* dyt = dy + t * head.out_stride;
        const float d = lane_sum(head.HS, [&](int64_t i, auto io) {
          return hn::Mul(io.load(yt + i), io.load(dyt + i));
        });
        const int64_t row = (t - first) * room.stride;
        softmax_backward(room.p + row, room.ds + row, t + 1, queries.end,
                         lse0[(b * shape.NH + h) * head.T + t], d, head.scale);
      }
      mix(dq, head.stride, room.ds, room, head, queries, head.k);
      spread(dk, room.ds, room, head, queries, head.q, head.stride);
      spread(dv, room.p, room, head, queries, dy, head.out_stride);
    }
  };
  for_heads(ctx, shape, qkv0, one_head);
}

}  // namespace ladder::cpu
