#include "bench/plain_attention.h"

#include <cmath>
#include <limits>

#include "bench/bench.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"

namespace ladder::bench {
namespace {

/// A matrix of T rows inside of a tensor.
struct Rows {
  float* ptr;
  int64_t stride;  ///< from row to row

  /// Summed over its columns, or over its rows.
  Factor along() const { return {.ptr = ptr, .stride_i = stride, .stride_k = 1}; }
  Factor across() const { return {.ptr = ptr, .stride_i = 1, .stride_k = stride}; }
};

/// One head of one sequence.
struct Head {
  int64_t T, HS;
  int64_t sequence, which;

  /// q, k or v (part 0, 1, 2) of qkv or dqkv: (T,HS).
  Rows part(const Tensor& qkv, int64_t part) const {
    const int64_t width = qkv.dim(-1);
    return {qkv.data<float>() + sequence * T * width + (3 * which + part) * HS, width};
  }
  /// Of out or dout: (T,HS).
  Rows columns(const Tensor& out) const {
    const int64_t width = out.dim(-1);
    return {out.data<float>() + sequence * T * width + which * HS, width};
  }
  /// Of P or dS: (T,T).
  Rows square(const Tensor& P) const {
    return {P.data<float>() + (sequence * P.dim(1) + which) * T * T, T};
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(HS)); }
};

/// f(ctx of one thread, head) for all heads of P.
template <class F>
void for_heads(const Ctx& ctx, const Tensor& P, int64_t C, F&& f) {
  const int64_t NH = P.dim(1), heads = P.dim(0) * NH;
  on_threads(ctx, [&](int thread) {
    Ctx own = ctx;
    own.threads = 1;
    own.scratch.ptr = scratch_of(ctx, thread).data();
    for (int64_t i = thread; i < heads; i += ctx.threads)
      f(own, Head{.T = P.dim(2), .HS = C / NH, .sequence = i / NH, .which = i % NH});
  });
}

/// C (M,N) = the sum over K of a and b.
void multiply(const Ctx& ctx, Rows c, int64_t M, int64_t N, int64_t K, Factor a, Factor b) {
  gemm(ctx, {.M = M, .N = N, .K = K, .a = a, .b = b, .c = c.ptr, .stride_c = c.stride});
}

/// Scores of a query to the n keys that it sees, out of T, become probabilities.
void softmax(float* row, int64_t n, int64_t T, float scale) {
  LaneAcc largest(broadcast(-std::numeric_limits<float>::infinity()));
  for_lanes(n, [&](int64_t part, int64_t i, auto io) {
    largest[part] = hn::Max(largest[part], io.load_or(largest[part], row + i));
  });
  const float max = largest.reduce([](auto a, auto b) { return hn::Max(a, b); });
  LaneAcc sum;
  for_lanes(n, [&](int64_t part, int64_t i, auto io) {
    const Vec e = exp(hn::Mul(broadcast(scale), hn::Sub(io.load(row + i), broadcast(max))));
    io.store(e, row + i);
    sum[part] = hn::Add(sum[part], io.only(e));
  });
  const Vec one = broadcast(1 / sum.sum());
  for_vectors(0, n, [&](int64_t i, auto io) { io.store(hn::Mul(io.load(row + i), one), row + i); });
  std::fill(row + n, row + T, 0.0F);
}

/// dP of the n keys that a query sees becomes scale * dS.
void softmax_backward(float* dP, const float* P, int64_t n, int64_t T, float scale) {
  LaneAcc sum;
  for_lanes(n, [&](int64_t part, int64_t i, auto io) {
    sum[part] = hn::MulAdd(io.load(P + i), io.load(dP + i), sum[part]);
  });
  const Vec mean = broadcast(sum.sum()), factor = broadcast(scale);
  for_vectors(0, n, [&](int64_t i, auto io) {
    const Vec dS = hn::Mul(io.load(P + i), hn::Sub(io.load(dP + i), mean));
    io.store(hn::Mul(factor, dS), dP + i);
  });
  std::fill(dP + n, dP + T, 0.0F);
}

}  // namespace

void plain_attention_forward(const Ctx& ctx, Tensor out, Tensor P, Tensor qkv) {
  for_heads(ctx, P, out.dim(-1), [&](const Ctx& own, const Head& head) {
    const auto [T, HS] = std::pair(head.T, head.HS);
    const Rows p = head.square(P);
    const auto part = [&](int64_t i) { return head.part(qkv, i); };
    multiply(own, p, T, T, HS, part(0).along(), part(1).along());
    for (int64_t t = 0; t < T; ++t) softmax(p.ptr + t * T, t + 1, T, head.scale());
    multiply(own, head.columns(out), T, HS, T, p.along(), part(2).across());
  });
}

void plain_attention_backward(const Ctx& ctx, Tensor dqkv, Tensor dS, Tensor dout, Tensor qkv,
                              Tensor P) {
  for_heads(ctx, P, dout.dim(-1), [&](const Ctx& own, const Head& head) {
    const auto [T, HS] = std::pair(head.T, head.HS);
    const Rows p = head.square(P), ds = head.square(dS), d = head.columns(dout);
    const auto part = [&](int64_t i) { return head.part(qkv, i); };
    multiply(own, head.part(dqkv, 2), T, HS, T, p.across(), d.across());
    multiply(own, ds, T, T, HS, d.along(), part(2).along());
    for (int64_t t = 0; t < T; ++t)
      softmax_backward(ds.ptr + t * T, p.ptr + t * T, t + 1, T, head.scale());
    multiply(own, head.part(dqkv, 0), T, HS, T, ds.along(), part(1).across());
    multiply(own, head.part(dqkv, 1), T, HS, T, ds.across(), part(0).across());
  });
}

void check_plain_attention(const Ctx& ctx) {
  constexpr int64_t B = 2, T = 70, NH = 3, C = 3 * 16;
  Bench box(ctx.threads);
  const Kernels& k = cpu_kernels();
  const Tensor qkv = box.random({B, T, 3 * C}), dout = box.random({B, T, C});
  const Tensor out = box.random({B, T, C}), plain_out = box.random({B, T, C});
  const Tensor dqkv = box.random({B, T, 3 * C}), plain_dqkv = box.random({B, T, 3 * C});
  const Tensor lse = box.random({B, NH, T});
  const Tensor P = box.random({B, NH, T, T}), dS = box.random({B, NH, T, T});
  k.attention_forward(ctx, out, lse, qkv);
  k.attention_backward(ctx, dqkv, dout, qkv, out, lse);
  plain_attention_forward(ctx, plain_out, P, qkv);
  plain_attention_backward(ctx, plain_dqkv, dS, dout, qkv, P);
  const auto compare = [](const char* name, const Tensor& a, const Tensor& b) {
    for (int64_t i = 0; i < a.size(); ++i)
      CHECK(std::abs(a.data<float>()[i] - b.data<float>()[i]) < 1e-5F,
            "{}: element {} is {}, in blocks {}", name, i, a.data<float>()[i], b.data<float>()[i]);
  };
  compare("plain_attention_forward", plain_out, out);
  compare("plain_attention_backward", plain_dqkv, dqkv);
}

}  // namespace ladder::bench
