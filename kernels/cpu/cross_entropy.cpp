// Softmax cross-entropy and its gradient, a token's row of logits at a time.
#include <cmath>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// sum_v exp(x_v - m) over the first `vocab` of V columns, in kLeaves leaves of V.
template <class Real>
float sum_exp(const Real* x, int64_t V, int64_t vocab, float m) {
  return tree_sum<float>(kLeaves, [&](int64_t i) {
    const Range columns = leaf(i, kLeaves, V);
    const int64_t count = std::max<int64_t>(0, std::min(columns.end, vocab) - columns.begin);
    return lane_sum(count, [&](int64_t v, auto io) {
      return io.only(exp(hn::Sub(io.load(x + columns.begin + v), broadcast(m))));
    });
  });
}

/// The gradient of one token's logits. Exponentials are computed anew: kept in dx, which may be of
/// 16 bits, they would be rounded.
template <class Real>
void gradient(Real* dx, const Real* x, int64_t target, int64_t V, int64_t vocab, float m, float sum,
              float scale) {
  const Vec inverse = broadcast(1.0f / sum);
  const auto probability = [&](Vec logit) {
    return hn::Mul(exp(hn::Sub(logit, broadcast(m))), inverse);
  };
  const Vec p_target = probability(broadcast(value_of(x[target])));  // before dx covers x
  for_vectors(0, vocab, [&](int64_t v, auto io) {
    io.store(hn::Mul(probability(io.load(x + v)), broadcast(scale)), dx + v);
  });
  Part(1).store(hn::Mul(hn::Sub(p_target, broadcast(1)), broadcast(scale)), dx + target);
  std::fill(dx + vocab, dx + V, Real{});
}

/// The loss of one token; its gradient goes to dx, which may be x, unless dx is null.
template <class Real>
float token(Real* dx, const Real* x, int64_t target, int64_t V, int64_t vocab, float scale) {
  const float m = lane_max(x, vocab);
  const float x_target = value_of(x[target]);
  const float sum = sum_exp(x, V, vocab, m);
  if (dx) gradient(dx, x, target, V, vocab, m, sum, scale);
  return std::log(sum) + m - x_target;
}

/// The losses of all tokens, and the gradients of their logits.
template <class Real>
void all_tokens(const Ctx& ctx, std::span<float> losses, const Tensor& dlogits,
                const Tensor& logits, const int32_t* target, int64_t vocab, float scale) {
  const int64_t V = logits.dim(-1);
  const Real* x0 = logits.data<Real>();
  Real* dx0 = dlogits ? dlogits.data<Real>() : nullptr;
  parallel_for(ctx, logits.rows(), 1, 4 * V, [&](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      Real* dx = dx0 ? dx0 + row * V : nullptr;
      float& loss = losses[static_cast<size_t>(row)];
      if (target[row] == kIgnore) {
        loss = 0;
        if (dx) std::fill(dx, dx + V, Real{});
      } else {
        loss = token(dx, x0 + row * V, target[row], V, vocab, scale);
      }
    }
  });
}

}  // namespace

void cross_entropy(const Ctx& ctx, Tensor losses, Tensor dlogits, Tensor logits, Tensor targets,
                   int64_t vocab, float scale) {
  const auto [B, T, V] = check_cross_entropy(losses, dlogits, logits, targets, vocab);
  const int32_t* target = targets.data<int32_t>();
  for (int64_t row = 0; row < B * T; ++row)
    if (target[row] != kIgnore) checked_index(target[row], vocab);
  const std::span<float> token_loss = shared_scratch<float>(ctx, B * T);
  dispatch(logits, [&]<class Real>(Real) {
    all_tokens<Real>(ctx, token_loss, dlogits, logits, target, vocab, scale);
  });
  float* sums = losses.data<float>();
  for (int64_t b = 0; b < B; ++b) {
    sums[b] = 0;
    for (int64_t t = 0; t < T; ++t) sums[b] += token_loss[static_cast<size_t>(b * T + t)];
  }
}

}  // namespace ladder::cpu
