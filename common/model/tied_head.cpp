#include "common/model/tied_head.h"

#include "kernels/kernels.h"

namespace ladder {
namespace {

void join(const Ctx& ctx, const ParamLayout& both, const Flat& grads) {
  const Span span(ctx, "join_tied_head");
  const std::span<const ParamSpec> own = both.specs(0), heads = both.specs(both.sections() - 1);
  for (size_t i = 0; i < own.size(); ++i) {
    const Tensor to = both.tensor(grads, own[i]);
    const Tensor from = both.tensor(grads, heads[i]).view(to.shape);
    if (own[i].role == Role::Embedding)
      ctx.kernels->add(ctx, to, to, from);
    else if (own[i].role != Role::Position)
      ctx.kernels->cast(ctx, to, from);  // the last norm is the head's alone
  }
}

}  // namespace

Tensor join_tied_head(const Ctx& ctx, const ParamLayout& layout, Tensor grads) {
  if (!layout.config().tied_head) return grads;
  join(ctx, layout.grads(), grads);
  return grads.first(layout.size());
}

Shard join_tied_head(const Ctx& ctx, const ParamLayout& shard, const Shard& grads) {
  if (!shard.config().tied_head) return grads;
  join(ctx, shard.grads(), grads);
  return Shard(grads.tensor.first(shard.size()));
}

}  // namespace ladder
