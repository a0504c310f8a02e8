// The linear layer in its three orientations, and the gradient of its bias.
#include "kernels/documents.h"
#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"
#include "kernels/tree.h"

namespace ladder::ref {

void matmul_forward(const Ctx&, Tensor out, Tensor inp, Tensor w, Tensor bias, int leaves) {
  const Extents s = check_shapes(Op::matmul_forward, out, inp, w, bias, leaves);
  dispatch(w, [&]<class Real>(Real) {
    for (int64_t r = 0; r < s.R; ++r)
      for (int64_t n = 0; n < s.N; ++n) {
        const Real *x = inp.data<Real>() + r * s.K, *row = w.data<Real>() + n * s.K;
        const Real sum = leaves_sum<Real>(leaves, s.K, [&](int64_t k) { return x[k] * row[k]; });
        out.data<Real>()[r * s.N + n] = bias ? sum + bias.data<Real>()[n] : sum;
      }
  });
}

void matmul_backward_input(const Ctx&, Tensor dinp, Tensor dout, Tensor w, int leaves) {
  const Extents s = check_shapes(Op::matmul_backward_input, dinp, dout, w, leaves);
  dispatch(w, [&]<class Real>(Real) {
    for (int64_t r = 0; r < s.R; ++r)
      for (int64_t k = 0; k < s.K; ++k) {
        const Real *d = dout.data<Real>() + r * s.N, *col = w.data<Real>() + k;
        dinp.data<Real>()[r * s.K + k] =
            leaves_sum<Real>(leaves, s.N, [&](int64_t n) { return d[n] * col[n * s.K]; });
      }
  });
}

void matmul_backward_weight(const Ctx& ctx, Tensor dw, Tensor dout, Tensor inp, Into into) {
  const Extents s = check_shapes(Op::matmul_backward_weight, dw, dout, inp);
  const Sequences sequences = sequences_of(ctx, s.B, s.T);
  dispatch(dw, [&]<class Real>(Real) {
    for (int64_t n = 0; n < s.N; ++n)
      for (int64_t k = 0; k < s.K; ++k) {
        const Real sum = tree_sum<Real>(sequences.count, [&](int64_t b) {
          const auto [first, end] = sequences[b];
          const Real* d = dout.data<Real>() + first * s.N + n;
          const Real* x = inp.data<Real>() + first * s.K + k;
          return matrix_sum<Real>(ctx.token_chunks, end - first,
                                  [&](int64_t t) { return d[t * s.N] * x[t * s.K]; });
        });
        store(dw.data<Real>()[n * s.K + k], sum, into);
      }
  });
}

void bias_backward(const Ctx& ctx, Tensor db, Tensor dout, Into into) {
  const Extents s = check_shapes(Op::bias_backward, db, dout);
  const Sequences sequences = sequences_of(ctx, s.B, s.T);
  dispatch(db, [&]<class Real>(Real) {
    for (int64_t n = 0; n < s.N; ++n) {
      const Real sum = tree_sum<Real>(sequences.count, [&](int64_t b) {
        const auto [first, end] = sequences[b];
        const Real* d = dout.data<Real>() + first * s.N + n;
        return vector_sum<Real>(ctx.token_chunks, end - first,
                                [&](int64_t t) { return d[t * s.N]; });
      });
      store(db.data<Real>()[n], sum, into);
    }
  });
}

}  // namespace ladder::ref
