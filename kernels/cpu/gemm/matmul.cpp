// The linear layer: three orientations of one matrix product, and the gradient of the bias.
#include <algorithm>

#include "kernels/cpu/columns.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// A matrix of `stride` columns as a factor whose sums run along its rows, or along its columns.
Factor along_rows(const Tensor& x, int64_t stride) {
  return {.ptr = x.host(), .dtype = x.dtype, .stride_i = stride, .stride_k = 1};
}
Factor along_columns(const Tensor& x, int64_t stride) {
  return {.ptr = x.host(), .dtype = x.dtype, .stride_i = 1, .stride_k = stride};
}

/// What the product of two tensors' codes must be multiplied by.
float unscale(const Tensor& a, const Tensor& b) {
  return 1.0f / ((a.fp8 ? a.fp8->scale : 1.0f) * (b.fp8 ? b.fp8->scale : 1.0f));
}

}  // namespace

void matmul_forward(const Ctx& ctx, Tensor out, Tensor inp, Tensor w, Tensor bias, int leaves) {
  const auto [rows, N, K] = check_matmul_forward(out, inp, w, bias, leaves);
  gemm(ctx, {.M = rows,
             .N = N,
             .K = K,
             .leaves = leaves,
             .a = along_rows(inp, K),
             .b = along_rows(w, K),
             .c = out.host(),
             .c_dtype = out.dtype,
             .stride_c = N,
             .bias = bias.host(),
             .factor = unscale(inp, w)});
}

void matmul_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor w, int leaves) {
  const auto [rows, N, K] = check_matmul_backward_input(dinp, dout, w, leaves);
  gemm(ctx, {.M = rows,
             .N = K,
             .K = N,
             .leaves = leaves,
             .a = along_rows(dout, N),
             .b = along_columns(w, K),
             .c = dinp.host(),
             .c_dtype = dinp.dtype,
             .stride_c = K,
             .factor = unscale(dout, w)});
}

void matmul_backward_weight(const Ctx& ctx, Tensor dw, Tensor dout, Tensor inp, Into into) {
  const auto [B, T, N, K] = check_matmul_backward_weight(dw, dout, inp);
  const int64_t token_leaves = matrix_leaves(ctx.token_chunks, T);
  gemm(ctx, {.M = N,
             .N = K,
             .K = B * T,
             .leaves = std::max<int64_t>(1, B) * token_leaves,  // of no sequences: an empty one
             .token_leaves = token_leaves,
             .a = along_columns(dout, N),
             .b = along_columns(inp, K),
             .c = dw.host(),
             .stride_c = K,
             .factor = unscale(dout, inp),
             .into = into,
             .for_later = true});
}

void bias_backward(const Ctx& ctx, Tensor db, Tensor dout, Into into) {
  const BiasShape s = check_bias_backward(db, dout);
  float* to = db.data<float>();
  dispatch(dout, [&]<class Real>(Real) {
    const Real* from = dout.data<Real>();
    parallel_for(ctx, s.N, kColumns, s.B * s.T, [&](Range range) {
      sum_columns<1>(
          range, {ctx.token_chunks, s.B, s.T},
          [=](ColumnSums<1>& sum, int64_t row, int64_t n, auto columns) {
            const Real* x = from + row * s.N + n;
            columns.each([&](int64_t part, int64_t i, auto io) {
              ask_for_later_row(x + i, s.N);
              sum.at(0, part) = hn::Add(sum.at(0, part), io.load(x + i));
            });
          },
          [=](ColumnSums<1>& sums, int64_t n, auto columns) {
            put_columns(to + n, sums, 0, columns, into);
          });
    });
  });
}

}  // namespace ladder::cpu
