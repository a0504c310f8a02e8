// Stochastic gradient descent: plain, with momentum, or with momentum in Nesterov's form.
//
//   v = momentum v + g,    then
//   w = w - lr v                    (heavy ball: Polyak 1964), or
//   w = w - lr (g + momentum v)     (--nesterov: Sutskever et al., ICML 2013)
//
// The velocity v takes 4 bytes per parameter. Without momentum there is no velocity.
#pragma once

#include <cstdint>
#include <vector>

#include "common/error.h"
#include "common/model/layout.h"
#include "common/run/command_line.h"
#include "common/save/training_state.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

struct SgdOptions {
  float momentum = 0;
  bool nesterov = false;

  void add_to(CommandLine& line) {
    line.group("01_sgd");
    line.add("--momentum", momentum, "SGD: share of the velocity kept, in [0, 1)");
    line.add("--nesterov", nesterov, "SGD: step along g + momentum v");
  }

  /// @throws UserError
  void check() const {
    if (!(momentum >= 0 && momentum < 1))
      throw UserError("--momentum must be in [0, 1), not {}", momentum);
    if (nesterov && momentum == 0) throw UserError("--nesterov takes a --momentum above 0");
  }
};

class Sgd {
 public:
  Sgd(Arena& arena, const ParamLayout& layout, const SgdOptions& options)
      : layout_(&layout), options_(options) {
    // own() makes a Flat of the tensor. Here it is a whole buffer; from chapter 08 on it is a
    // rank's part of one.
    if (options.momentum > 0)
      velocity_ = layout.own(arena.zeros(Mem::Optim, "velocity", Dtype::F32, {layout.size()}));
  }

  /// Bytes of Optim: 4 P with momentum, else 0.
  static int64_t bytes(const ParamLayout& layout, const SgdOptions& options) {
    return options.momentum > 0 ? 4 * layout.size() : 0;
  }

  /// One update of all parameters. params, grads F32.
  void step(const Ctx& ctx, const Flat& params, const Flat& grads, float lr) {
    const Span span(ctx, "sgd_update");
    for (const ParamSpec& spec : layout_->specs()) {
      const auto part = [&](const Flat& flat) {
        return flat.tensor ? layout_->tensor(flat, spec) : Tensor{};  // null without momentum
      };
      ctx.kernels->sgd_update(
          ctx, part(params), part(velocity_), part(grads),
          {.lr = lr, .momentum = options_.momentum, .nesterov = options_.nesterov});
    }
  }

  /// What the next step needs from a checkpoint.
  std::vector<NamedTensor> tensors() const {
    if (!velocity_.tensor) return {};
    return {{.name = "velocity", .tensor = velocity_.tensor}};
  }

 private:
  const ParamLayout* layout_;
  SgdOptions options_;
  Flat velocity_;
};

}  // namespace ladder
