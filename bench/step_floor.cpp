#include "bench/step_floor.h"

namespace ladder::bench {
namespace {

constexpr int64_t L = 12, C = 768, NH = 12, HS = C / NH, V = 50304, kPositions = 1024;
constexpr int64_t kBlockParams = 12 * C * C + 13 * C;
constexpr int64_t kParams = (2 * V + kPositions) * C + L * kBlockParams + 2 * C;

}  // namespace

double step_floor_seconds(const Ceilings& ceilings, int64_t B, int64_t T) {
  Ceilings reached = ceilings;
  reached.fma = ceilings.gemm;
  double seconds = 0;
  const auto add = [&](int64_t times, Cost cost) {
    seconds += static_cast<double>(times) * ideal_seconds(reached, cost);
  };
  const int64_t rows = B * T;
  for (const int64_t columns : {3 * C, C, 4 * C, 4 * C})  // qkv, projection, MLP in and out
    add(3 * L, cost::matmul(rows, columns, C));
  add(3, cost::matmul(rows, V, C));
  add(L, cost::attention_forward(B, T, NH, HS));
  add(L, cost::attention_backward(B, T, NH, HS));

  add(2 * L + 1, cost::norm_forward(B, T, C));
  add(2 * L + 1, cost::norm_backward_input(B, T, C));
  add(2 * L + 1, cost::norm_backward_weight(B, T, C));
  add(2 * L, cost::join_forward(rows, C));
  add(2 * L, cost::add(rows * C));
  for (const int64_t columns : {3 * C, C, 4 * C, C}) add(L, cost::bias_backward(B, T, columns));
  add(L, cost::gelu_forward(rows * 4 * C));
  add(L, cost::gelu_backward(rows * 4 * C));

  add(1, cost::embed_forward(B, T, C));
  add(1, cost::embed_backward(B, T, C, V));
  add(1, cost::cross_entropy(B, T, V));
  add(1, cost::squared_norm(kParams));
  add(1, cost::adamw_update(kParams));
  return seconds;
}

}  // namespace ladder::bench
