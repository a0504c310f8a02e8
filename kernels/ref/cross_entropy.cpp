// Softmax and cross-entropy in one: the loss of each token and the gradient of its logits.
#include <algorithm>
#include <cmath>

#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"
#include "kernels/tree.h"

namespace ladder::ref {
namespace {

/// Loss of one token. dx is null, or may be x itself: x is read to the end before.
template <class Real>
Real token_loss(const CrossEntropyShape& s, int64_t vocab, Real* dx, const Real* x, int64_t target,
                Real scale) {
  // Shifted by the maximum, no exponential overflows and the largest is 1.
  const Real max = *std::max_element(x, x + vocab);
  const Real sum = leaves_sum<Real>(
      kLeaves, s.V, [&](int64_t v) { return v < vocab ? std::exp(x[v] - max) : Real(0); });
  const Real loss = std::log(sum) + max - x[target];
  for (int64_t v = 0; dx && v < s.V; ++v) {
    const Real probability = v < vocab ? std::exp(x[v] - max) / sum : Real(0);
    dx[v] = (probability - Real(v == target)) * scale;
  }
  return loss;
}

}  // namespace

void cross_entropy(const Ctx&, Tensor losses, Tensor dlogits, Tensor logits, Tensor targets,
                   int64_t vocab, float scale) {
  const CrossEntropyShape s = check_cross_entropy(losses, dlogits, logits, targets, vocab);
  dispatch(logits, [&]<class Real>(Real) {
    for (int64_t b = 0; b < s.B; ++b) {
      Real sequence = 0;
      for (int64_t row = b * s.T; row < (b + 1) * s.T; ++row) {
        Real* dx = dlogits ? dlogits.data<Real>() + row * s.V : nullptr;
        const int32_t target = targets.data<int32_t>()[row];
        if (target != kIgnore)
          sequence += token_loss(s, vocab, dx, logits.data<Real>() + row * s.V,
                                 checked_index(target, vocab), Real(scale));
        else if (dx)
          std::fill_n(dx, s.V, Real(0));
      }
      losses.data<Real>()[b] = sequence;
    }
  });
}

}  // namespace ladder::ref
