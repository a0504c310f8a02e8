// Layer norm, arXiv 1607.06450: brings each token's channels to mean 0 and variance 1, then
// w x + b. RMSNorm, arXiv 1910.07467, takes no mean away: 0 stands in its place.
#include <cmath>

#include "kernels/documents.h"
#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"
#include "kernels/tree.h"

namespace ladder::ref {
namespace {

/// Added inside the square root, so that a constant row, or a row of zeros, causes no division by
/// zero.
constexpr double kEps = 1e-5;

template <class Real>
Real mean_of(const Real* x, int64_t C) {
  Real sum = 0;
  for (int64_t c = 0; c < C; ++c) sum += x[c];
  return sum / Real(C);
}

/// out, x, w (C); b (C) or null
template <class Real>
void forward_row(int64_t C, Real* out, Real mean, Real& rstd, const Real* x, const Real* w,
                 const Real* b) {
  Real squares = 0;
  for (int64_t c = 0; c < C; ++c) squares += (x[c] - mean) * (x[c] - mean);
  rstd = 1 / std::sqrt(squares / Real(C) + Real(kEps));
  for (int64_t c = 0; c < C; ++c) {
    const Real scaled = (x[c] - mean) * rstd * w[c];
    out[c] = b ? scaled + b[c] : scaled;
  }
}

/// dinp, dout, x, w (C). `centred`: the mean was taken from x, so it depends on x.
template <class Real>
void backward_input_row(int64_t C, Real* dinp, const Real* dout, const Real* x, const Real* w,
                        bool centred, Real mean, Real rstd) {
  Real sum_g = 0, sum_g_xhat = 0;
  for (int64_t c = 0; c < C; ++c) {
    const Real g = dout[c] * w[c];
    sum_g += g;
    sum_g_xhat += g * ((x[c] - mean) * rstd);
  }
  const Real mean_g = centred ? sum_g / Real(C) : 0, mean_g_xhat = sum_g_xhat / Real(C);
  for (int64_t c = 0; c < C; ++c) {
    const Real xhat = (x[c] - mean) * rstd;
    dinp[c] = rstd * (dout[c] * w[c] - mean_g - xhat * mean_g_xhat);
  }
}

}  // namespace

void norm_forward(const Ctx&, Tensor out, Tensor mean, Tensor rstd, Tensor inp, Tensor w,
                  Tensor b) {
  const Extents s = check_shapes(Op::norm_forward, out, mean, rstd, inp, w, b);
  dispatch(inp, [&]<class Real>(Real) {
    for (int64_t r = 0; r < s.B * s.T; ++r) {
      const Real* x = inp.data<Real>() + r * s.C;
      const Real m = mean ? mean_of(x, s.C) : 0;
      if (mean) mean.data<Real>()[r] = m;
      forward_row(s.C, out.data<Real>() + r * s.C, m, rstd.data<Real>()[r], x, w.data<Real>(),
                  b.data<Real>());
    }
  });
}

void norm_backward_input(const Ctx&, Tensor dinp, Tensor dout, Tensor inp, Tensor w, Tensor mean,
                         Tensor rstd) {
  const Extents s = check_shapes(Op::norm_backward_input, dinp, dout, inp, w, mean, rstd);
  dispatch(inp, [&]<class Real>(Real) {
    for (int64_t r = 0; r < s.B * s.T; ++r)
      backward_input_row(s.C, dinp.data<Real>() + r * s.C, dout.data<Real>() + r * s.C,
                         inp.data<Real>() + r * s.C, w.data<Real>(), bool(mean),
                         mean ? mean.data<Real>()[r] : 0, rstd.data<Real>()[r]);
  });
}

void norm_backward_weight(const Ctx& ctx, Tensor dw, Tensor db, Tensor dout, Tensor inp,
                          Tensor mean, Tensor rstd, Into into) {
  const Extents s = check_shapes(Op::norm_backward_weight, dw, db, dout, inp, mean, rstd);
  const Sequences sequences = sequences_of(ctx, s.B, s.T);
  dispatch(inp, [&]<class Real>(Real) {
    const Real *d = dout.data<Real>(), *x = inp.data<Real>(), *r = rstd.data<Real>();
    const Real* m = mean.data<Real>();
    for (int64_t c = 0; c < s.C; ++c) {
      const Real sum_w = tree_sum<Real>(sequences.count, [&](int64_t b) {
        const Range rows = sequences[b];
        return vector_sum<Real>(ctx.token_chunks, rows.size(), [&](int64_t t) {
          const int64_t row = rows.begin + t;
          return d[row * s.C + c] * ((x[row * s.C + c] - (m ? m[row] : 0)) * r[row]);
        });
      });
      store(dw.data<Real>()[c], sum_w, into);
      if (!db) continue;
      const Real sum_b = tree_sum<Real>(sequences.count, [&](int64_t b) {
        const Range rows = sequences[b];
        return vector_sum<Real>(ctx.token_chunks, rows.size(),
                                [&](int64_t t) { return d[(rows.begin + t) * s.C + c]; });
      });
      store(db.data<Real>()[c], sum_b, into);
    }
  });
}

}  // namespace ladder::ref
