// The router, one token's row of logits at a time. There are few experts, so the work per token
// counts, rather than the work per element.
#include <algorithm>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "kernels/documents.h"
#include "kernels/experts.h"
#include "kernels/math.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// The softmax of one token's E logits.
struct Softmax {
  float max, sum;

  Softmax(const float* x, int64_t E) : max(lane_max(x, E)) {
    sum = lane_sum(E, [&](int64_t e, auto io) { return io.only(power(io.load(x + e))); });
  }
  Vec power(Vec x) const { return exp(hn::Sub(x, broadcast(max))); }
  Vec of(Vec x) const { return hn::Div(power(x), broadcast(sum)); }
  float log_sum() const { return max + math::log(sum); }
};

/// The logistic function.
Vec sigmoid(Vec x) { return hn::Div(broadcast(1), hn::Add(broadcast(1), exp(hn::Neg(x)))); }

/// The number that makes the scores of a token add up to 1 when they are divided by it. For a
/// softmax it is 1.
float divisor(const float* scores, int64_t E, const RouteRule& rule) {
  if (!rule.sigmoid) return 1;
  return lane_sum(E, [&](int64_t e, auto io) { return io.load(scores + e); });
}

/// route_forward for one token. scores, x (E); expert, weight (k); bias (E) or null
void route_token(int32_t* expert, float* weight, float* scores, const float* x, const float* bias,
                 const Extents& s, const RouteRule& rule, const Softmax& softmax) {
  for_vectors(0, s.E, [&](int64_t e, auto io) {
    const Vec logit = io.load(x + e);
    io.store(rule.sigmoid ? sigmoid(logit) : softmax.of(logit), scores + e);
  });
  choose_experts(expert, scores, bias, s.E, s.k);
  const float sum = rule.renormalize ? chosen_sum(scores, expert, s.k) : 1;
  for (int64_t j = 0; j < s.k; ++j) weight[j] = scores[expert[j]] / sum;
}

/// The balance loss of a sequence: sum_e f_e P_e. load (E); scores (T,E); by (T): divisors
float balance_loss(const int32_t* load, const float* scores, const float* by, const Extents& s,
                   int chunks) {
  float sum = 0;
  for (int64_t e = 0; e < s.E; ++e) {
    const float P =
        vector_sum<float>(chunks, s.T, [&](int64_t t) { return scores[t * s.E + e] / by[t]; });
    sum += load_share<float>(load[e], s) * (P / static_cast<float>(s.T));
  }
  return sum;
}

/// ds = the gradient of a token's scores. ds, scores (E); dweight, expert (k); load (E)
void score_gradient(float* ds, const float* dweight, const int32_t* expert, const float* scores,
                    const int32_t* load, const Extents& s, const RouteRule& rule, float balance) {
  const float sum = divisor(scores, s.E, rule), per_token = balance / static_cast<float>(s.T);
  float mean = 0;  // subtracted because p is divided by the sum of the scores
  for (int64_t e = 0; e < s.E; ++e) {
    ds[e] = per_token * load_share<float>(load[e], s);
    if (rule.sigmoid) mean += ds[e] * (scores[e] / sum);
  }
  for (int64_t e = 0; e < s.E; ++e) ds[e] = (ds[e] - mean) / sum;
  const float chosen = rule.renormalize ? chosen_sum(scores, expert, s.k) : 1;
  float common = 0;
  for (int64_t j = 0; j < s.k && rule.renormalize; ++j)
    common += dweight[j] * (scores[expert[j]] / chosen);
  for (int64_t j = 0; j < s.k; ++j) ds[expert[j]] += (dweight[j] - common) / chosen;
}

/// Turns the gradient of a token's scores, in dx, into that of its logits. dx, x, scores (E)
void logit_gradient(float* dx, const float* x, const float* scores, const Extents& s,
                    const RouteRule& rule, float z) {
  const float mean = lane_sum(
      s.E, [&](int64_t e, auto io) { return hn::Mul(io.load(dx + e), io.load(scores + e)); });
  const Softmax softmax(x, s.E);
  const Vec slope = broadcast(z * 2 * softmax.log_sum() / static_cast<float>(s.T));
  for_vectors(0, s.E, [&](int64_t e, auto io) {
    const Vec p = io.load(scores + e), d = io.load(dx + e);
    const Vec through =
        rule.sigmoid ? hn::Mul(d, hn::Sub(broadcast(1), p)) : hn::Sub(d, broadcast(mean));
    io.store(hn::MulAdd(slope, softmax.of(io.load(x + e)), hn::Mul(p, through)), dx + e);
  });
}

}  // namespace

void route_forward(const Ctx& ctx, Tensor expert, Tensor weight, Tensor scores, Tensor load,
                   Tensor losses, Tensor logits, Tensor bias, const RouteRule& rule) {
  refuse_documents(ctx, "route_forward");
  const Extents s =
      check_shapes(Op::route_forward, expert, weight, scores, load, losses, logits, bias);
  const float *x = logits.data<float>(), *b = bias.data<float>();
  float *p = scores.data<float>(), *w = weight.data<float>(), *sums = losses.data<float>();
  int32_t *chosen = expert.data<int32_t>(), *loads = load.data<int32_t>();
  const std::span<float> scratch = shared_scratch<float>(ctx, 2 * s.B * s.T);
  float *by = scratch.data(), *squares = by + s.B * s.T;
  parallel_for(ctx, s.B * s.T, 1, 8 * s.E, [=](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      const Softmax softmax(x + row * s.E, s.E);
      route_token(chosen + row * s.k, w + row * s.k, p + row * s.E, x + row * s.E, b, s, rule,
                  softmax);
      by[row] = divisor(p + row * s.E, s.E, rule);
      squares[row] = softmax.log_sum() * softmax.log_sum();
    }
  });
  parallel_for(ctx, s.B, 1, s.T * s.E, [=, chunks = ctx.token_chunks](Range range) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      int32_t* of = loads + i * s.E;
      std::fill_n(of, s.E, 0);
      for (int64_t pair = i * s.T * s.k; pair < (i + 1) * s.T * s.k; ++pair) ++of[chosen[pair]];
      sums[i] = balance_loss(of, p + i * s.T * s.E, by + i * s.T, s, chunks);
      sums[s.B + i] =
          vector_sum<float>(chunks, s.T, [&](int64_t t) { return squares[i * s.T + t]; }) /
          static_cast<float>(s.T);
    }
  });
}

void route_backward(const Ctx& ctx, Tensor dlogits, Tensor dweight, Tensor expert, Tensor scores,
                    Tensor load, Tensor logits, const RouteRule& rule, float balance, float z) {
  const Extents s =
      check_shapes(Op::route_backward, dlogits, dweight, expert, scores, load, logits);
  check_experts(expert, s.E, /*elsewhere=*/false);
  const float *x = logits.data<float>(), *p = scores.data<float>(), *dw = dweight.data<float>();
  const int32_t *chosen = expert.data<int32_t>(), *loads = load.data<int32_t>();
  float* dx = dlogits.data<float>();
  parallel_for(ctx, s.B * s.T, 1, 8 * s.E, [=](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      const int64_t at = row * s.E;
      score_gradient(dx + at, dw + row * s.k, chosen + row * s.k, p + at, loads + row / s.T * s.E,
                     s, rule, balance);
      logit_gradient(dx + at, x + at, p + at, s, rule, z);
    }
  });
}

}  // namespace ladder::cpu
