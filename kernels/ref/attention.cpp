// Causal attention, arXiv 1706.03762. Nothing of size T x T is kept: backward recomputes the
// weights from the log of their sum, as in arXiv 2205.14135.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {
namespace {

template <class Real>
Real dot(int64_t n, const Real* a, const Real* b) {
  Real sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// y += a x
template <class Real>
void axpy(int64_t n, Real* y, Real a, const Real* x) {
  for (int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

/// Where the vectors of sequence b, head h, token t lie in qkv and in out.
template <class Real>
struct HeadView {
  AttentionShape s;
  int64_t b, h;

  Real* q(Real* qkv, int64_t t) const {
    return qkv + (b * s.T + t) * 3 * s.NH * s.HS + 3 * h * s.HS;
  }
  Real* k(Real* qkv, int64_t t) const { return q(qkv, t) + s.HS; }
  Real* v(Real* qkv, int64_t t) const { return q(qkv, t) + 2 * s.HS; }
  Real* out(Real* base, int64_t t) const { return base + (b * s.T + t) * s.NH * s.HS + h * s.HS; }
  int64_t lse(int64_t t) const { return (b * s.NH + h) * s.T + t; }
  Real scale() const { return 1 / std::sqrt(Real(s.HS)); }
};

/// One head of one sequence. out (B,T,NH*HS); lse (B,NH,T); qkv (B,T,3*NH*HS)
template <class Real>
void forward_head(const HeadView<Real>& at, Real* out, Real* lse, Real* qkv) {
  const auto [B, T, NH, HS] = at.s;
  std::vector<Real> score(static_cast<size_t>(T));
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t u = 0; u <= t; ++u) score[u] = dot(HS, at.q(qkv, t), at.k(qkv, u)) * at.scale();
    const Real max = *std::max_element(score.begin(), score.begin() + t + 1);
    Real sum = 0;
    for (int64_t u = 0; u <= t; ++u) sum += std::exp(score[u] - max);
    lse[at.lse(t)] = max + std::log(sum);
    std::fill_n(at.out(out, t), HS, Real(0));
    for (int64_t u = 0; u <= t; ++u)
      axpy(HS, at.out(out, t), std::exp(score[u] - lse[at.lse(t)]), at.v(qkv, u));
  }
}

/// One head of one sequence. dqkv, qkv (B,T,3*NH*HS); dout, out (B,T,NH*HS); lse (B,NH,T)
template <class Real>
void backward_head(const HeadView<Real>& at, Real* dqkv, Real* dout, Real* qkv, Real* out,
                   const Real* lse) {
  const auto [B, T, NH, HS] = at.s;
  for (int64_t t = 0; t < T; ++t) std::fill_n(at.q(dqkv, t), 3 * HS, Real(0));
  for (int64_t t = 0; t < T; ++t) {
    // sum_u P[t,u] (dout_t . v_u), without a second pass over u.
    const Real D = dot(HS, at.out(dout, t), at.out(out, t));
    for (int64_t u = 0; u <= t; ++u) {
      const Real S = dot(HS, at.q(qkv, t), at.k(qkv, u)) * at.scale();
      const Real P = std::exp(S - lse[at.lse(t)]);
      const Real dS = P * (dot(HS, at.out(dout, t), at.v(qkv, u)) - D) * at.scale();
      axpy(HS, at.v(dqkv, u), P, at.out(dout, t));
      axpy(HS, at.q(dqkv, t), dS, at.k(qkv, u));
      axpy(HS, at.k(dqkv, u), dS, at.q(qkv, t));
    }
  }
}

}  // namespace

void attention_forward(const Ctx&, Tensor out, Tensor lse, Tensor qkv) {
  const AttentionShape s = check_attention_forward(out, lse, qkv);
  dispatch(out, [&]<class Real>(Real) {
    for (int64_t b = 0; b < s.B; ++b)
      for (int64_t h = 0; h < s.NH; ++h)
        forward_head(HeadView<Real>{s, b, h}, out.data<Real>(), lse.data<Real>(), qkv.data<Real>());
  });
}

void attention_backward(const Ctx&, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out, Tensor lse) {
  const AttentionShape s = check_attention_backward(dqkv, dout, qkv, out, lse);
  dispatch(out, [&]<class Real>(Real) {
    for (int64_t b = 0; b < s.B; ++b)
      for (int64_t h = 0; h < s.NH; ++h)
        backward_head(HeadView<Real>{s, b, h}, dqkv.data<Real>(), dout.data<Real>(),
                      qkv.data<Real>(), out.data<Real>(), lse.data<Real>());
  });
}

}  // namespace ladder::ref
