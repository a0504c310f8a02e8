#include "common/model/measure.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/kernels.h"
#include "kernels/limbs.h"
#include "kernels/tree.h"

namespace ladder {

double grad_norm(const Ctx& ctx, const Flat& grads, const ParamLayout& layout, Tensor limbs,
                 Comm* others) {
  const Span span(ctx, "grad_norm");
  std::fill_n(limbs.data<int64_t>(), kLimbs, 0);
  for (const ParamSpec& spec : layout.specs())
    if (!spec.is_copy)
      ctx.kernels->squared_norm(
          ctx, limbs, flat(layout.tensor(grads, spec)).first(spec.live()).view({1, spec.live()}));
  ctx.synchronize();
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
