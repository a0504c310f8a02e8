// The linear layer: three orientations of one matrix product, and the gradient of the bias.
#include "kernels/cpu/columns.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {

void matmul_forward(const Ctx& ctx, Tensor out, Tensor inp, Tensor w, Tensor bias, int leaves) {
  const auto [rows, N, K] = check_matmul_forward(out, inp, w, bias, leaves);
  gemm(ctx, {.M = rows,
             .N = N,
             .K = K,
             .leaves = leaves,
             .a = {.ptr = inp.data<float>(), .stride_i = K, .stride_k = 1},
             .b = {.ptr = w.data<float>(), .stride_i = K, .stride_k = 1},
             .c = out.data<float>(),
             .stride_c = N,
             .bias = bias ? bias.data<float>() : nullptr});
}

void matmul_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor w, int leaves) {
  const auto [rows, N, K] = check_matmul_backward_input(dinp, dout, w, leaves);
  gemm(ctx, {.M = rows,
             .N = K,
             .K = N,
             .leaves = leaves,
             .a = {.ptr = dout.data<float>(), .stride_i = N, .stride_k = 1},
             .b = {.ptr = w.data<float>(), .stride_i = 1, .stride_k = K},
             .c = dinp.data<float>(),
             .stride_c = K});
}

void matmul_backward_weight(const Ctx& ctx, Tensor dw, Tensor dout, Tensor inp, Into into) {
  const auto [B, T, N, K] = check_matmul_backward_weight(dw, dout, inp);
  gemm(ctx, {.M = N,
             .N = K,
             .K = B * T,
             .leaves = B,
             .a = {.ptr = dout.data<float>(), .stride_i = 1, .stride_k = N},
             .b = {.ptr = inp.data<float>(), .stride_i = 1, .stride_k = K},
             .c = dw.data<float>(),
             .stride_c = K,
             .into = into});
}

void bias_backward(const Ctx& ctx, Tensor db, Tensor dout, Into into) {
  const auto [B, T, N] = check_bias_backward(db, dout);
  float* to = db.data<float>();
  const float* from = dout.data<float>();
  parallel_for(ctx, N, kColumns, B * T, [&, B = B, T = T, N = N](Range range) {
    for (int64_t n = range.begin; n < range.end; n += kColumns) {
      const int64_t count = std::min(kColumns, range.end - n);
      auto sums = sum_tokens<1>(B, T, [&](ColumnSums<1>& sum, int64_t row) {
        const float* x = from + row * N + n;
        for_columns(count, [&](int64_t part, int64_t i, auto io) {
          sum.at(0, part) = hn::Add(sum.at(0, part), io.load(x + i));
        });
      });
      put_columns(to + n, sums, 0, count, into);
    }
  });
}

}  // namespace ladder::cpu
