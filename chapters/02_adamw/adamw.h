// Adam with L2 and AdamW: one update, two places for the decay.
//
//   m = beta1 m + (1 - beta1) g             first moment;  corrected: m' = m / (1 - beta1^t)
//   v = beta2 v + (1 - beta2) g^2           second moment; corrected: v' = v / (1 - beta2^t)
//   w = w - lr m' / (sqrt(v') + eps)
//
// Adam with L2 adds weight_decay w to g before all this. The decay is then divided by sqrt(v'), so
// a weight with large gradients hardly decays. AdamW subtracts lr weight_decay w from the weight
// itself, so every weight decays alike. Sources: arXiv 1412.6980 (Adam), 1711.05101 (AdamW).
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "common/error.h"
#include "common/model/layout.h"
#include "common/run/command_line.h"
#include "common/save/training_state.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/math.h"

namespace ladder {

/// Options of Adam and AdamW.
struct AdamWOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0.1f;

  void add_to(CommandLine& line) {
    line.group("02_adamw");
    line.add("--beta1", beta1, "share of the first moment kept, in [0, 1); not used by sgd");
    line.add("--beta2", beta2, "share of the second moment kept, in [0, 1); not used by sgd");
    line.add("--eps", eps, "added to the root of the second moment; not used by sgd");
    line.add("--weight-decay", weight_decay, "on matrices and embeddings; not used by sgd");
  }

  /// @throws UserError
  void check() const {
    if (!(beta1 >= 0 && beta1 < 1)) throw UserError("--beta1 must be in [0, 1), not {}", beta1);
    if (!(beta2 >= 0 && beta2 < 1)) throw UserError("--beta2 must be in [0, 1), not {}", beta2);
    if (!(eps > 0 && std::isfinite(eps))) throw UserError("--eps must be above 0, not {}", eps);
    if (!(weight_decay >= 0 && std::isfinite(weight_decay)))
      throw UserError("--weight-decay must be at least 0, not {}", weight_decay);
  }

  /// Matrices and embeddings decay. Biases and layer norms do not: they do not overfit, and a gain
  /// that decays to zero would switch its channel off.
  float decay_of(const ParamSpec& spec) const { return spec.is_matrix() ? weight_decay : 0.0f; }

  /// The constants for one tensor at update t (from 1).
  AdamStep step_of(const ParamSpec& spec, float lr, int64_t t, bool decoupled) const {
    const auto correction = [t](float beta) {
      return static_cast<float>(1 - math::pow(double{beta}, static_cast<double>(t)));
    };
    return {.lr = lr,
            .beta1 = beta1,
            .beta2 = beta2,
            .eps = eps,
            .weight_decay = decay_of(spec),
            .decoupled = decoupled,
            .correction1 = correction(beta1),
            .correction2 = correction(beta2)};
  }
};

class AdamW {
 public:
  /// @param decoupled true: AdamW; false: Adam with L2
  AdamW(Arena& arena, const ParamLayout& layout, const AdamWOptions& options, bool decoupled)
      : layout_(&layout),
        options_(options),
        decoupled_(decoupled),
        m_(layout.own(arena.zeros(Mem::Optim, "m", Dtype::F32, {layout.size()}))),
        v_(layout.own(arena.zeros(Mem::Optim, "v", Dtype::F32, {layout.size()}))) {}

  /// Bytes of Optim: m and v, 8 P.
  static int64_t bytes(const ParamLayout& layout) { return 8 * layout.size(); }

  /// Update t (from 1) of all parameters. params, grads F32.
  void step(const Ctx& ctx, const Flat& params, const Flat& grads, float lr, int64_t t) {
    for (const ParamSpec& spec : layout_->specs()) {
      const auto part = [&](const Flat& flat) { return layout_->tensor(flat, spec); };
      ctx.kernels->adamw_update(ctx, part(params), part(m_), part(v_), part(grads),
                                options_.step_of(spec, lr, t, decoupled_));
    }
  }

  std::vector<NamedTensor> tensors() const { return {{"m", m_.tensor}, {"v", v_.tensor}}; }

 private:
  const ParamLayout* layout_;
  AdamWOptions options_;
  bool decoupled_;
  Flat m_, v_;
};

}  // namespace ladder
