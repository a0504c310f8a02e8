// Adafactor, arXiv 1804.04235: keeps the second moment of a matrix as one row and one column.
#include <algorithm>
#include <cmath>

#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {
namespace {

/// average = beta average + (1 - beta) value
template <class Real>
void move_average(Real& average, double value, double beta) {
  average = static_cast<Real>(beta * average + (1 - beta) * value);
}

/// Algorithm 4, lines 5 and 6: means over the columns and over the rows of q = g^2 + eps.
template <class Real>
void update_moments(const Extents& s, Real* row, Real* col, const Real* grad,
                    const AdafactorStep& step) {
  const auto q = [&](int64_t i) { return double(grad[i]) * double(grad[i]) + double(step.eps); };
  if (!col) {
    for (int64_t n = 0; n < s.N; ++n) move_average(row[n], q(n), step.beta2);
    return;
  }
  for (int64_t r = 0; r < s.R; ++r) {
    double sum = 0;
    for (int64_t n = 0; n < s.N; ++n) sum += q(r * s.N + n);
    move_average(row[r], sum / double(s.N), step.beta2);
  }
  for (int64_t n = 0; n < s.N; ++n) {
    double sum = 0;
    for (int64_t r = 0; r < s.R; ++r) sum += q(r * s.N + n);
    move_average(col[n], sum / double(s.R), step.beta2);
  }
}

template <class Real>
void update(const Extents& s, Real* param, Real* row, Real* col, const Real* grad,
            const AdafactorStep& step) {
  update_moments(s, row, col, grad, step);
  double mean = 0;
  for (int64_t r = 0; col && r < s.R; ++r) mean += row[r] / double(s.R);
  // In double, because where gradients are zero, row times col is eps^2 = 1e-60.
  const auto direction = [&](int64_t r, int64_t n) {
    const double second = col ? double(row[r]) * double(col[n]) / mean : double(row[n]);
    return double(grad[r * s.N + n]) / std::sqrt(second);
  };
  double squares = 0;
  for (int64_t r = 0; r < s.R; ++r)
    for (int64_t n = 0; n < s.N; ++n) squares += direction(r, n) * direction(r, n);
  const double rms = std::sqrt(squares / double(s.R * s.N));
  const double damping = std::max(1.0, rms / double(step.clip));
  for (int64_t r = 0; r < s.R; ++r)
    for (int64_t n = 0; n < s.N; ++n) {
      Real& w = param[r * s.N + n];
      const double u = direction(r, n) / damping;
      w = static_cast<Real>(w - double(step.lr) * (u + double(step.weight_decay) * w));
    }
}

}  // namespace

void adafactor_update(const Ctx&, Tensor param, Tensor row, Tensor col, Tensor grad,
                      const AdafactorStep& step) {
  const Extents s = check_shapes(Op::adafactor_update, param, row, col, grad);
  dispatch(param, [&]<class Real>(Real) {
    update(s, param.data<Real>(), row.data<Real>(), col ? col.data<Real>() : nullptr,
           grad.data<Real>(), step);
  });
}

}  // namespace ladder::ref
