// AdamW in which each parameter has a rate, an eps and a decay of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "chapters/02_adamw/optimizer.h"
#include "chapters/34_scaling/scaling.h"

namespace ladder {

/// Chapter 02's AdamW, whose three numbers Scaling multiplies.
class ScaledAdamW {
 public:
  /// @throws UserError if another optimizer is chosen: the rules are derived for Adam's step
  ScaledAdamW(Arena& arena, const ParamLayout& layout, const Scaling& scaling,
              const SgdOptions& sgd, const OptimizerOptions& options)
      : layout_(&layout), scaling_(&scaling), options_(options.adamw) {
    if (options.kind != OptimizerKind::AdamW || sgd.momentum != 0)
      throw UserError(
          "34_scaling has --optimizer adamw without --momentum; ch04_clipping has others");
    m_ = arena.zeros(Mem::Optim, "m", Dtype::F32, {layout.size()});
    v_ = arena.zeros(Mem::Optim, "v", Dtype::F32, {layout.size()});
  }

  /// Bytes of Optim: m and v, 8 P.
  static int64_t bytes(const ParamLayout& layout) { return 8 * layout.size(); }

  /// One update of all parameters. params, grads F32 (layout.size()).
  void step(const Ctx& ctx, Tensor params, Tensor grads, float lr) {
    const Span span(ctx, "optimizer_step");
    ++updates_;
    scaling_->for_each(*layout_, [&](const ParamSpec& spec, const Factors& factors) {
      const auto part = [&](Tensor all) { return layout_->tensor(all, spec); };
      AdamStep step = options_.step_of(spec, lr, updates_, /*decoupled=*/true);
      step.lr = static_cast<float>(step.lr * factors.rate);
      step.eps = static_cast<float>(step.eps * factors.eps);
      step.weight_decay = static_cast<float>(step.weight_decay * factors.decay);
      ctx.kernels->adamw_update(ctx, part(params), part(m_), part(v_), part(grads), step);
    });
  }

  std::vector<NamedTensor> tensors() const { return {{"m", m_}, {"v", v_}}; }
  nlohmann::json state() const { return {{"name", "adamw"}, {"updates", updates_}}; }
  void set_state(const nlohmann::json& state) { updates_ = count_in(state.at("updates")); }
  bool needs_state() const { return true; }

 private:
  const ParamLayout* layout_;
  const Scaling* scaling_;
  AdamWOptions options_;
  Tensor m_, v_;
  int64_t updates_ = 0;
};

}  // namespace ladder
