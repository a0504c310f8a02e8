#include "common/model/measure.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "common/model/scaled_norm.h"
#include "kernels/kernels.h"
#include "kernels/limbs.h"
#include "kernels/tree.h"

namespace ladder {
namespace {

/// A sum for each of factors.rows.
void sum_squares(const Ctx& ctx, const Flat& grads, const ParamLayout& layout, Tensor limbs,
                 const NormFactors& factors) {
  const Span span(ctx, "grad_norm");
  std::fill_n(limbs.data<int64_t>(), limbs.size(), 0);
  // Neighboring tensors are summed as one row. Its leaves are theirs, because each begins at a
  // multiple of kAlign. On a device, a call for each tensor would take longer than the sums.
  static_assert(kAlign % kNormLeaf == 0);
  Tensor row;
  int64_t sum_of_row = 0;
  const auto add = [&] {
    const Tensor sum = limbs.slice(sum_of_row, 1);
    if (row) ctx.kernels->squared_norm(ctx, sum, row.view({1, row.size()}));
  };
  for (const ParamSpec& spec : layout.specs()) {
    if (spec.is_copy) continue;
    const Tensor all = layout.tensor(grads, spec);
    const Tensor next = all.view({all.size()}).first(spec.live());
    const int64_t sum =
        std::ranges::find(factors.rows, factors.of(spec.role)) - factors.rows.begin();
    if (row && sum == sum_of_row && static_cast<std::byte*>(row.ptr) + row.bytes() == next.ptr) {
      row.shape = {row.size() + next.size()};
      continue;
    }
    add();
    row = next;
    sum_of_row = sum;
  }
  add();
  ctx.synchronize();
  for (int64_t r = 0; r < limbs.dim(0); ++r) carry_limbs(limbs.slice(r, 1).data<int64_t>());
}

double norm_of(Tensor limbs, const NormFactors& factors) {
  double squares = 0;
  for (int64_t r = 0; r < limbs.dim(0); ++r) {
    const double factor = factors.rows[static_cast<size_t>(r)];
    squares += factor * factor * limbs_value(limbs.slice(r, 1).data<int64_t>());
  }
  return std::sqrt(squares);
}

}  // namespace

void sum_squares(const Ctx& ctx, const Flat& grads, const ParamLayout& layout, Tensor limbs) {
  sum_squares(ctx, grads, layout, limbs, NormFactors{});
}

double norm_of(Tensor limbs) { return norm_of(limbs, NormFactors{}); }

double scaled_norm(const Ctx& ctx, const Flat& grads, const ParamLayout& layout, Tensor limbs,
                   const NormFactors& factors) {
  sum_squares(ctx, grads, layout, limbs, factors);
  return norm_of(limbs, factors);
}

float mean_loss(const Ctx& ctx, Tensor losses, int64_t targets) {
  ctx.synchronize();
  const float* loss = losses.data<float>();
  const float sum = tree_sum<float>(losses.dim(0), [&](int64_t b) { return loss[b]; });
  return sum / static_cast<float>(targets);
}

double total_loss(const Ctx& ctx, Tensor losses) {
  ctx.synchronize();
  const float* loss = losses.data<float>();
  return std::accumulate(loss, loss + losses.size(), 0.0);
}

}  // namespace ladder
