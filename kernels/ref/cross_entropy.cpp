// Softmax and cross-entropy in one: the loss of each token, and the gradient of its logits. As one
// operation, or in three parts between which tensor-parallel ranks exchange.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/documents.h"
#include "kernels/math.h"
#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"
#include "kernels/tree.h"

namespace ladder::ref {
namespace {

/// One token's logits: V columns. All but the first `vocab` are padding.
template <class Real>
struct TokenLogits {
  const Real* x;
  int64_t V, vocab;

  /// The largest logit; NaN if there is one. After it is subtracted, no exponential overflows, and
  /// the largest is 1.
  Real max() const {
    Real largest = -std::numeric_limits<Real>::infinity();
    for (int64_t v = 0; v < vocab; ++v)
      if (std::isnan(x[v]) || x[v] > largest) largest = x[v];
    return largest;
  }

  Real sum_exp(int leaves, Real max) const {
    return leaves_sum<Real>(leaves, V,
                            [&](int64_t v) { return v < vocab ? math::exp(x[v] - max) : Real(0); });
  }

  /// The gradient of this token's logits. dx may be x.
  void gradient(Real* dx, Real max, Real sum, int64_t target, Real scale) const {
    for (int64_t v = 0; v < V; ++v) {
      const Real probability = v < vocab ? math::exp(x[v] - max) / sum : Real(0);
      dx[v] = (probability - Real(v == target)) * scale;
    }
  }
};

template <class Real>
TokenLogits<Real> row_of(const Tensor& logits, int64_t row, int64_t vocab) {
  const int64_t V = logits.dim(-1);
  return {.x = logits.data<Real>() + row * V, .V = V, .vocab = vocab};
}

/// What the loss and the gradient of a row need beside its logits.
template <class Real>
struct Statistics {
  Real max, sum, x_target;
};

/// Writes losses and dlogits. Calls statistics(row, target) for the rows that are not ignored.
template <class Real, class F>
void all_rows(const Ctx& ctx, const Extents& s, const Tensor& losses, const Tensor& dlogits,
              const Tensor& logits, const Tensor& targets, int64_t vocab, Real scale,
              const F& statistics) {
  std::vector<Real> token_loss(static_cast<size_t>(s.B * s.T), Real(kNothing));
  for (int64_t row = 0; row < s.B * s.T; ++row) {
    Real* dx = dlogits ? dlogits.data<Real>() + row * s.V : nullptr;
    const int32_t target = targets.data<int32_t>()[row];
    if (target == kIgnore) {
      if (dx) std::fill_n(dx, s.V, Real(0));
      continue;
    }
    const Statistics<Real> found = statistics(row, target);
    if (dx) row_of<Real>(logits, row, vocab).gradient(dx, found.max, found.sum, target, scale);
    token_loss[static_cast<size_t>(row)] = math::log(found.sum) + found.max - found.x_target;
  }
  const Sequences sequences = all_sequences_of(ctx, s.B, s.T);
  for (int64_t b = 0; b < sequences.count; ++b) {
    const Range rows = sequences[b];
    losses.data<Real>()[b] = vector_sum<Real>(ctx.token_chunks, rows.size(), [&](int64_t t) {
      return token_loss[static_cast<size_t>(rows.begin + t)];
    });
  }
}

}  // namespace

void cross_entropy(const Ctx& ctx, Tensor losses, Tensor dlogits, Tensor logits, Tensor targets,
                   int64_t vocab, float scale) {
  const Extents s = check_shapes(Op::cross_entropy, ctx, losses, dlogits, logits, targets, vocab);
  check_targets(targets, vocab, /*elsewhere=*/false);
  dispatch(logits, [&]<class Real>(Real) {
    all_rows(ctx, s, losses, dlogits, logits, targets, vocab, Real(scale),
             [&](int64_t r, int32_t t) {
               const auto row = row_of<Real>(logits, r, vocab);
               const Real max = row.max();
               return Statistics<Real>{
                   .max = max, .sum = row.sum_exp(kLeaves, max), .x_target = row.x[t]};
             });
  });
}

void softmax_max(const Ctx&, Tensor max, Tensor logits, int64_t vocab) {
  const Extents s = check_shapes(Op::softmax_max, max, logits, vocab);
  dispatch(logits, [&]<class Real>(Real) {
    for (int64_t r = 0; r < s.B * s.T; ++r)
      max.data<Real>()[r] = row_of<Real>(logits, r, vocab).max();
  });
}

void softmax_sum(const Ctx& ctx, Tensor sum, Tensor target, Tensor logits, Tensor max,
                 Tensor targets, int64_t vocab) {
  const Extents s = check_shapes(Op::softmax_sum, sum, target, logits, max, targets, vocab);
  check_targets(targets, vocab, /*elsewhere=*/true);
  dispatch(logits, [&]<class Real>(Real) {
    for (int64_t r = 0; r < s.B * s.T; ++r) {
      const auto row = row_of<Real>(logits, r, vocab);
      const int32_t t = targets.data<int32_t>()[r];
      sum.data<Real>()[r] = row.sum_exp(ctx.leaves, max.data<Real>()[r]);
      target.data<Real>()[r] = is_here(t) ? row.x[t] : Real(kNothing);
    }
  });
}

void softmax_loss(const Ctx& ctx, Tensor losses, Tensor dlogits, Tensor logits, Tensor max,
                  Tensor sum, Tensor target, Tensor targets, int64_t vocab, float scale) {
  const Extents s = check_shapes(Op::softmax_loss, ctx, losses, dlogits, logits, max, sum, target,
                                 targets, vocab);
  check_targets(targets, vocab, /*elsewhere=*/true);
  dispatch(logits, [&]<class Real>(Real) {
    all_rows(ctx, s, losses, dlogits, logits, targets, vocab, Real(scale), [&](int64_t r, int32_t) {
      return Statistics<Real>{.max = max.data<Real>()[r],
                              .sum = sum.data<Real>()[r],
                              .x_target = target.data<Real>()[r]};
    });
  });
}

}  // namespace ladder::ref
