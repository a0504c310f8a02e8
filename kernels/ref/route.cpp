// The router: which experts a token takes, the weight of each, and the router's own losses.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/documents.h"
#include "kernels/experts.h"
#include "kernels/math.h"
#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {
namespace {

/// The softmax of one token's E logits.
template <class Real>
struct Softmax {
  Real max = -std::numeric_limits<Real>::infinity(), sum = 0;

  Softmax(const Real* x, int64_t E) {
    for (int64_t e = 0; e < E; ++e)
      if (std::isnan(x[e]) || x[e] > max) max = x[e];
    for (int64_t e = 0; e < E; ++e) sum += math::exp(x[e] - max);
  }
  Real of(Real x) const { return math::exp(x - max) / sum; }
  Real log_sum() const { return max + math::log(sum); }
};

template <class Real>
void score(Real* scores, const Real* x, int64_t E, const RouteRule& rule) {
  const Softmax<Real> softmax(x, E);
  for (int64_t e = 0; e < E; ++e)
    scores[e] = rule.sigmoid ? 1 / (1 + math::exp(-x[e])) : softmax.of(x[e]);
}

/// The number that makes the scores of a token add up to 1 when they are divided by it. For a
/// softmax it is 1.
template <class Real>
Real divisor(const Real* scores, int64_t E, const RouteRule& rule) {
  if (!rule.sigmoid) return 1;
  Real sum = 0;
  for (int64_t e = 0; e < E; ++e) sum += scores[e];
  return sum;
}

/// ds = the gradient of a token's scores. ds, scores (E); dweight, expert (k); load (E), that of
/// the token's sequence
template <class Real>
void score_gradient(Real* ds, const Real* dweight, const int32_t* expert, const Real* scores,
                    const int32_t* load, const Extents& s, const RouteRule& rule, Real balance) {
  const Real sum = divisor(scores, s.E, rule);
  // The gradient of the balance loss with respect to p. Below, `mean` is subtracted from it because
  // p is divided by the sum of the scores.
  const auto dp = [&](int64_t e) {
    return balance * load_share<Real>(load[e], s) / static_cast<Real>(s.T);
  };
  Real mean = 0;
  for (int64_t e = 0; e < s.E && rule.sigmoid; ++e) mean += dp(e) * (scores[e] / sum);
  for (int64_t e = 0; e < s.E; ++e) ds[e] = (dp(e) - mean) / sum;
  const Real chosen = rule.renormalize ? chosen_sum(scores, expert, s.k) : 1;
  Real common = 0;
  for (int64_t j = 0; j < s.k && rule.renormalize; ++j)
    common += dweight[j] * (scores[expert[j]] / chosen);
  for (int64_t j = 0; j < s.k; ++j) ds[expert[j]] += (dweight[j] - common) / chosen;
}

/// Turns the gradient of a token's scores, in dx, into that of its logits. dx, x, scores (E)
template <class Real>
void logit_gradient(Real* dx, const Real* x, const Real* scores, const Extents& s,
                    const RouteRule& rule, Real z) {
  Real mean = 0;
  for (int64_t e = 0; e < s.E; ++e) mean += dx[e] * scores[e];
  const Softmax<Real> softmax(x, s.E);
  const Real slope = z * 2 * softmax.log_sum() / static_cast<Real>(s.T);
  for (int64_t e = 0; e < s.E; ++e) {
    const Real through = rule.sigmoid ? dx[e] * (1 - scores[e]) : dx[e] - mean;
    dx[e] = scores[e] * through + slope * softmax.of(x[e]);
  }
}

}  // namespace

void route_forward(const Ctx& ctx, Tensor expert, Tensor weight, Tensor scores, Tensor load,
                   Tensor losses, Tensor logits, Tensor bias, const RouteRule& rule) {
  refuse_documents(ctx, "route_forward");
  const Extents s =
      check_shapes(Op::route_forward, expert, weight, scores, load, losses, logits, bias);
  int32_t* loads = load.data<int32_t>();
  std::fill_n(loads, load.size(), 0);
  dispatch(logits, [&]<class Real>(Real) {
    for (int64_t row = 0; row < s.B * s.T; ++row) {
      Real* p = scores.data<Real>() + row * s.E;
      int32_t* chosen = expert.data<int32_t>() + row * s.k;
      score(p, logits.data<Real>() + row * s.E, s.E, rule);
      choose_experts(chosen, p, bias.data<Real>(), s.E, s.k);
      const Real sum = rule.renormalize ? chosen_sum(p, chosen, s.k) : 1;
      for (int64_t j = 0; j < s.k; ++j) {
        weight.data<Real>()[row * s.k + j] = p[chosen[j]] / sum;
        ++loads[row / s.T * s.E + chosen[j]];
      }
    }
    const auto mean = [&](auto&& f) {
      return vector_sum<Real>(ctx.token_chunks, s.T, f) / static_cast<Real>(s.T);
    };
    for (int64_t b = 0; b < s.B; ++b) {
      const Real *x = logits.data<Real>() + b * s.T * s.E, *p = scores.data<Real>() + b * s.T * s.E;
      Real balance = 0;
      for (int64_t e = 0; e < s.E; ++e)
        balance += load_share<Real>(loads[b * s.E + e], s) * mean([&](int64_t t) {
                     return p[t * s.E + e] / divisor(p + t * s.E, s.E, rule);
                   });
      losses.data<Real>()[b] = balance;
      losses.data<Real>()[s.B + b] = mean([&](int64_t t) {
        const Real log_sum = Softmax<Real>(x + t * s.E, s.E).log_sum();
        return log_sum * log_sum;
      });
    }
  });
}

void route_backward(const Ctx&, Tensor dlogits, Tensor dweight, Tensor expert, Tensor scores,
                    Tensor load, Tensor logits, const RouteRule& rule, float balance, float z) {
  const Extents s =
      check_shapes(Op::route_backward, dlogits, dweight, expert, scores, load, logits);
  check_experts(expert, s.E, /*elsewhere=*/false);
  dispatch(logits, [&]<class Real>(Real) {
    for (int64_t row = 0; row < s.B * s.T; ++row) {
      Real* dx = dlogits.data<Real>() + row * s.E;
      const Real* p = scores.data<Real>() + row * s.E;
      score_gradient(dx, dweight.data<Real>() + row * s.k, expert.data<int32_t>() + row * s.k, p,
                     load.data<int32_t>() + row / s.T * s.E, s, rule, Real(balance));
      logit_gradient(dx, logits.data<Real>() + row * s.E, p, s, rule, Real(z));
    }
  });
}

}  // namespace ladder::ref
