// Lion: the sign of an interpolated momentum (arXiv 2302.06675).
//
//   u = sign(beta1 m + (1 - beta1) g)
//   w = w - lr (u + weight_decay w)
//   m = beta2 m + (1 - beta2) g
//
// Lion has one state, Adam has two. A step moves a weight by lr, however large its gradient is (and
// not where u is 0). So the paper advises an lr 3 to 10 times smaller than AdamW's, and a
// weight_decay larger by the same factor.
#pragma once

#include <cstdint>
#include <vector>

#include "chapters/02_adamw/adamw.h"

namespace ladder {

class Lion {
 public:
  Lion(Arena& arena, const ParamLayout& layout, const AdamWOptions& options)
      : layout_(&layout),
        options_(options),
        m_(layout.own(arena.zeros(Mem::Optim, "m", Dtype::F32, {layout.size()}))) {}

  /// Bytes of Optim: m, 4 P.
  static int64_t bytes(const ParamLayout& layout) { return 4 * layout.size(); }

  /// One update of all parameters. params, grads F32.
  void step(const Ctx& ctx, const Flat& params, const Flat& grads, float lr, int64_t /*t*/) {
    for (const ParamSpec& spec : layout_->specs()) {
      const auto part = [&](const Flat& flat) { return layout_->tensor(flat, spec); };
      ctx.kernels->lion_update(ctx, part(params), part(m_), part(grads),
                               {.lr = lr,
                                .beta1 = options_.beta1,
                                .beta2 = options_.beta2,
                                .weight_decay = options_.decay_of(spec)});
    }
  }

  std::vector<NamedTensor> tensors() const { return {{"m", m_.tensor}}; }

 private:
  const ParamLayout* layout_;
  AdamWOptions options_;
  Flat m_;
};

}  // namespace ladder
