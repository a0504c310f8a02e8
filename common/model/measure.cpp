#include "common/model/measure.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "kernels/kernels.h"
#include "kernels/limbs.h"
#include "kernels/tree.h"

namespace ladder {

double grad_norm(const Ctx& ctx, const Flat& grads, const ParamLayout& layout, Tensor limbs,
                 Comm* others) {
  const Span span(ctx, "grad_norm");
  std::fill_n(limbs.data<int64_t>(), kLimbs, 0);
  // Neighboring tensors are summed as one row. Its leaves are theirs, because each begins at a
  // multiple of kAlign. On a device, a call for each tensor would take longer than the sums.
  static_assert(kAlign % kNormLeaf == 0);
  Tensor row;
  const auto add = [&] {
    if (row) ctx.kernels->squared_norm(ctx, limbs, row.view({1, row.size()}));
  };
  for (const ParamSpec& spec : layout.specs()) {
    if (spec.is_copy) continue;
    const Tensor next = flat(layout.tensor(grads, spec)).first(spec.live());
    if (row && static_cast<std::byte*>(row.ptr) + row.bytes() == next.ptr) {
      row.shape = {row.size() + next.size()};
      continue;
    }
    add();
    row = next;
  }
  add();
  ctx.synchronize();
  carry_limbs(limbs.data<int64_t>());
  if (others) others->all_reduce(limbs);
  return std::sqrt(limbs_value(limbs.data<int64_t>()));
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
