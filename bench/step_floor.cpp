#include "bench/ceilings.h"

namespace ladder::bench {
namespace {

constexpr int64_t L = 12, C = 768, NH = 12, HS = C / NH, V = 50304, kPositions = 1024;
constexpr int64_t kBlockParams = 12 * C * C + 13 * C;
constexpr int64_t kParams = (2 * V + kPositions) * C + L * kBlockParams + 2 * C;

}  // namespace

double step_floor_seconds(const Ceilings& ceilings, int64_t B, int64_t T, Dtype compute) {
  const bool narrow = compute != Dtype::F32;
  Ceilings scalar = ceilings, products = ceilings;  // what reaches which rate of arithmetic
  scalar.fma = ceilings.gemm;
  products.fma = narrow ? ceilings.gemm_bf16 : ceilings.gemm;
  double seconds = 0;
  const auto add = [&](int64_t times, const Ceilings& reached, Cost cost) {
    seconds += static_cast<double>(times) * ideal_seconds(reached, cost);
  };
  // Costs are those of floats.
  const auto in_compute = [&](Cost cost) {
    return Cost{.bytes = cost.bytes * size_of(compute) / cost::kFloat, .flops = cost.flops};
  };
  const auto pass = [&](int64_t times, Cost cost) { add(times, scalar, in_compute(cost)); };
  const auto product = [&](int64_t times, int64_t rows, int64_t N, int64_t K) {
    const Cost narrow_all = in_compute(cost::matmul(rows, N, K));
    const int64_t wider = (cost::kFloat - size_of(compute)) * N * K;  // the gradient of the weight
    add(2 * times, products, narrow_all);
    add(times, products, {.bytes = narrow_all.bytes + wider, .flops = narrow_all.flops});
  };

  const int64_t rows = B * T;
  for (const int64_t columns : {3 * C, C, 4 * C, 4 * C})  // qkv, projection, MLP in and out
    product(L, rows, columns, C);
  product(1, rows, V, C);
  add(L, products, in_compute(cost::attention_forward(B, T, NH, HS)));
  add(L, products, in_compute(cost::attention_backward(B, T, NH, HS)));

  pass(2 * L + 1, cost::norm_forward(B, T, C));
  pass(2 * L + 1, cost::norm_backward_input(B, T, C));
  pass(2 * L + 1, cost::norm_backward_weight(B, T, C));
  pass(2 * L, cost::residual_forward(rows, C));
  pass(2 * L, cost::add(rows * C));
  for (const int64_t columns : {3 * C, C, 4 * C, C}) pass(L, cost::bias_backward(B, T, columns));
  pass(L, cost::gelu_forward(rows * 4 * C));
  pass(L, cost::gelu_backward(rows * 4 * C));
  pass(1, cost::embed_forward(B, T, C));
  pass(1, cost::cross_entropy(B, T, V));

  add(1, scalar, cost::embed_backward(B, T, C, V));
  add(1, scalar, cost::squared_norm(kParams));
  add(1, scalar, cost::adamw_update(kParams));
  if (narrow)
    add(1, scalar, {.bytes = (cost::kFloat + size_of(compute)) * kParams, .flops = kParams});
  return seconds;
}

}  // namespace ladder::bench
