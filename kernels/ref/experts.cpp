// Experts: their rows, the products over these rows, and the way back to the tokens.
#include "kernels/experts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"
#include "kernels/tree.h"

namespace ladder::ref {
namespace {

/// Calls f(e, row) for every row of every expert.
template <class F>
void for_rows(const ExpertRows& rows, int64_t M, F&& f) {
  check_offsets(rows, M);
  for (int64_t e = 0; e + 1 < rows.offsets.size(); ++e) {
    const auto [begin, end] = rows_of(rows, e);
    for (int64_t row = begin; row < end; ++row) f(e, row);
  }
}

}  // namespace

void expert_rows(const Ctx&, const ExpertRows& rows, Tensor expert, int64_t capacity) {
  const Extents s = check_shapes(Op::expert_rows, rows, expert, capacity);
  check_experts(expert, s.E, /*elsewhere=*/true);
  sort_by_expert(rows, expert, capacity);
}

void gather_rows(const Ctx&, Tensor out, Tensor inp, const ExpertRows& rows) {
  const Extents s = check_shapes(Op::gather_rows, out, inp, rows);
  dispatch(out, [&]<class Real>(Real) {
    for_rows(rows, s.M, [&](int64_t, int64_t row) {
      const int64_t token = rows.from.data<int32_t>()[row] / s.k;
      std::copy_n(inp.data<Real>() + token * s.C, s.C, out.data<Real>() + row * s.C);
    });
  });
}

void grouped_matmul_forward(const Ctx&, Tensor out, Tensor inp, Tensor w, const ExpertRows& rows,
                            int leaves) {
  const Extents s = check_shapes(Op::grouped_matmul_forward, out, inp, w, rows, leaves);
  dispatch(w, [&]<class Real>(Real) {
    for_rows(rows, s.M, [&](int64_t e, int64_t row) {
      const Real *x = inp.data<Real>() + row * s.K, *of = w.data<Real>() + e * s.N * s.K;
      for (int64_t n = 0; n < s.N; ++n)
        out.data<Real>()[row * s.N + n] =
            leaves_sum<Real>(leaves, s.K, [&](int64_t k) { return x[k] * of[n * s.K + k]; });
    });
  });
}

void grouped_matmul_backward_input(const Ctx&, Tensor dinp, Tensor dout, Tensor w,
                                   const ExpertRows& rows, int leaves) {
  const Extents s = check_shapes(Op::grouped_matmul_backward_input, dinp, dout, w, rows, leaves);
  dispatch(w, [&]<class Real>(Real) {
    for_rows(rows, s.M, [&](int64_t e, int64_t row) {
      const Real *d = dout.data<Real>() + row * s.N, *of = w.data<Real>() + e * s.N * s.K;
      for (int64_t k = 0; k < s.K; ++k)
        dinp.data<Real>()[row * s.K + k] =
            leaves_sum<Real>(leaves, s.N, [&](int64_t n) { return d[n] * of[n * s.K + k]; });
    });
  });
}

void grouped_matmul_backward_weight(const Ctx& ctx, Tensor dw, Tensor dout, Tensor inp,
                                    const ExpertRows& rows, Into into) {
  const Extents s = check_shapes(Op::grouped_matmul_backward_weight, dw, dout, inp, rows);
  check_offsets(rows, s.M);
  dispatch(dw, [&]<class Real>(Real) {
    const Real *d = dout.data<Real>(), *x = inp.data<Real>();
    for (int64_t e = 0; e < s.E; ++e) {
      std::vector<std::pair<int64_t, Fold>> leaves;
      for_leaves(rows, e, ctx.token_chunks,
                 [&](int64_t index, const Fold& of) { leaves.emplace_back(index, of); });
      for (int64_t i = 0; i < s.N * s.K; ++i) {
        const auto term = [&](int64_t row) {
          return d[row * s.N + i / s.K] * x[row * s.K + i % s.K];
        };
        SparseTreeSum<Real> sum;
        for (const auto& [index, of] : leaves)
          sum.push(index, chain_sum<Real>(of.late, term, chain_sum<Real>(of.early, term)));
        store(dw.data<Real>()[e * s.N * s.K + i], sum.take(), into);
      }
    }
  });
}

void unpermute_forward(const Ctx&, Tensor out, Tensor y, const ExpertRows& rows, Tensor expert,
                       Tensor weight) {
  const Extents s = check_shapes(Op::unpermute_forward, out, y, rows, expert, weight);
  const int32_t *row = rows.row.data<int32_t>(), *e = expert.data<int32_t>();
  dispatch(out, [&]<class Real>(Real) {
    const Real* w = weight.data<Real>();
    for (int64_t i = 0; i < s.B * s.T * s.C; ++i) {
      SparseTreeSum<Real> sum;
      for (int64_t pair = i / s.C * s.k; pair < (i / s.C + 1) * s.k; ++pair) {
        if (row[pair] == kNoRow) continue;
        const Real of = y.data<Real>()[row[pair] * s.C + i % s.C];
        sum.push(e[pair], w ? w[pair] * of : of);
      }
      out.data<Real>()[i] = sum.take();
    }
  });
}

void unpermute_backward(const Ctx&, Tensor dy, Tensor dweight, Tensor dout, Tensor y,
                        const ExpertRows& rows, Tensor weight) {
  const Extents s = check_shapes(Op::unpermute_backward, dy, dweight, dout, y, rows, weight);
  dispatch(y, [&]<class Real>(Real) {
    for (int64_t pair = 0; pair < s.B * s.T * s.k; ++pair) {
      const int64_t row = rows.row.data<int32_t>()[pair];
      const Real *d = dout.data<Real>() + pair / s.k * s.C, w = weight.data<Real>()[pair];
      Real sum = 0;
      for (int64_t c = 0; c < s.C && row != kNoRow; ++c) {
        dy.data<Real>()[row * s.C + c] = w * d[c];
        sum += d[c] * y.data<Real>()[row * s.C + c];
      }
      dweight.data<Real>()[pair] = sum;
    }
  });
}

}  // namespace ladder::ref
