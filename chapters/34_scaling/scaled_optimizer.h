// AdamW in which each parameter has a rate, an eps and a decay of its own.
#pragma once

#include "chapters/02_adamw/optimizer.h"
#include "chapters/34_scaling/scaling.h"

namespace ladder {

/// Chapter 02's optimizer. With --mup it is AdamW, whose three numbers Scaling multiplies.
class ScaledOptimizer : public Optimizer {
 public:
  /// @throws UserError if --mup comes with another optimizer: its rules are those of Adam's step
  ScaledOptimizer(Arena& arena, const ParamLayout& layout, const Scaling& scaling,
                  const SgdOptions& sgd, const OptimizerOptions& options)
      : Optimizer(arena, layout, sgd, options),
        layout_(&layout),
        scaling_(&scaling),
        options_(options.adamw) {
    if (scaling.is_on() && options.kind != OptimizerKind::AdamW)
      throw UserError("--mup is for --optimizer adamw, not {}", to_string(options.kind));
  }

  /// One update of all parameters. params, grads F32 (layout.size()).
  void step(const Ctx& ctx, Tensor params, Tensor grads, float lr) {
    if (!scaling_->is_on()) return Optimizer::step(ctx, params, grads, lr);
    const Span span(ctx, "optimizer_step");
    ++updates_;
    const Tensor m = tensors()[0].tensor, v = tensors()[1].tensor;
    scaling_->for_each(*layout_, [&](const ParamSpec& spec, const Factors& factors) {
      const auto part = [&](Tensor all) { return layout_->tensor(all, spec); };
      AdamStep step = options_.step_of(spec, lr, updates_, /*decoupled=*/true);
      step.lr = static_cast<float>(step.lr * factors.rate);
      step.eps = static_cast<float>(step.eps * factors.eps);
      step.weight_decay = static_cast<float>(step.weight_decay * factors.decay);
      ctx.kernels->adamw_update(ctx, part(params), part(m), part(v), part(grads), step);
    });
  }

 private:
  const ParamLayout* layout_;
  const Scaling* scaling_;
  AdamWOptions options_;
};

}  // namespace ladder
