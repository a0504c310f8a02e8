// Softmax cross-entropy and its gradient, a token's row of logits at a time.
#include <cmath>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// sum_v exp(x_v - m) over the first `vocab` of V columns, in kLeaves leaves of V; the
/// exponentials themselves go to e, which may be x, unless e is null.
float sum_exp(float* e, const float* x, int64_t V, int64_t vocab, float m) {
  return tree_sum<float>(kLeaves, [&](int64_t i) {
    const Range columns = leaf(i, kLeaves, V);
    const int64_t count = std::max<int64_t>(0, std::min(columns.end, vocab) - columns.begin);
    return lane_sum(count, [&](int64_t v, auto io) {
      const int64_t at = columns.begin + v;
      const Vec term = io.only(exp(hn::Sub(io.load(x + at), broadcast(m))));
      if (e) io.store(term, e + at);
      return term;
    });
  });
}

/// The loss of one token; its gradient goes to dx, which may be x, unless dx is null.
float token(float* dx, const float* x, int64_t target, int64_t V, int64_t vocab, float scale) {
  const float m = lane_max(x, vocab);
  const float x_target = x[target];
  const float sum = sum_exp(dx, x, V, vocab, m);
  if (dx) {
    const float inverse = 1.0f / sum;
    const float p_target = dx[target] * inverse;
    for_vectors(0, vocab, [&](int64_t v, auto io) {
      const Vec p = hn::Mul(io.load(dx + v), broadcast(inverse));
      io.store(hn::Mul(p, broadcast(scale)), dx + v);
    });
    dx[target] = (p_target - 1.0f) * scale;
    std::fill(dx + vocab, dx + V, 0.0f);
  }
  return std::log(sum) + m - x_target;
}

}  // namespace

void cross_entropy(const Ctx& ctx, Tensor losses, Tensor dlogits, Tensor logits, Tensor targets,
                   int64_t vocab, float scale) {
  const auto shape = check_cross_entropy(losses, dlogits, logits, targets, vocab);
  const int64_t B = shape.B;
  const int64_t T = shape.T;
  const int64_t V = shape.V;
  const float* x0 = logits.data<float>();
  float* dx0 = dlogits ? dlogits.data<float>() : nullptr;
  const int32_t* target = targets.data<int32_t>();
  for (int64_t row = 0; row < B * T; ++row)
    if (target[row] != kIgnore) checked_index(target[row], vocab);
  const std::span<float> token_loss = shared_scratch<float>(ctx, B * T);

  parallel_for(ctx, B * T, 1, 4 * V, [&](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* dx = dx0 ? dx0 + row * V : nullptr;
      float& loss = token_loss[static_cast<size_t>(row)];
      if (target[row] == kIgnore) {
        loss = 0;
        if (dx) std::fill(dx, dx + V, 0.0f);
      } else {
        loss = token(dx, x0 + row * V, target[row], V, vocab, scale);
      }
    }
  });
  float* sums = losses.data<float>();
  for (int64_t b = 0; b < B; ++b) {
    sums[b] = 0;
    for (int64_t t = 0; t < T; ++t) sums[b] += token_loss[static_cast<size_t>(b * T + t)];
  }
}

}  // namespace ladder::cpu
