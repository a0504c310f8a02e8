// The gradient noise scale: how large a batch is worth its cost (arXiv 1812.06162, appendix A).
//
// Let G be the true gradient and S the trace of the covariance of one sequence's gradient. Then the
// gradient g_b of b sequences has E|g_b|^2 = |G|^2 + S / b. Two batch sizes, b (a micro-batch, MBS)
// and B (the whole batch, GBS), give two equations, and so unbiased estimates of both unknowns:
//
//   |G|^2 = (B |g_B|^2 - b |g_b|^2) / (B - b)
//   S     = (|g_b|^2 - |g_B|^2) / (1 / b - 1 / B)
//
// Each is averaged over steps; the weight of a step fades by 2% a step. The noise scale is
// S / |G|^2, in sequences. Well below it, a batch twice as large nearly halves the number of steps.
// Well above it, a larger batch is wasted. The first gradients of a run are by far its longest, and
// an average that keeps 98% per step forgets them slowly: see the README before you trust an early
// value.
//
// |g_b|^2 is a mean over ranks and over micro-steps. Only those micro-steps count that write a
// fresh buffer of GradTree, where their gradient is alone: every second one (with --accumulate
// running only the first). The square is summed section by section, before a section is added to
// that of another micro-batch or sent to other ranks. This costs a norm of the whole gradient for
// each such micro-step. Sums of squares are integers (kernels/limbs.h). So the estimate has the
// same bits however a batch is shared, if the small batch is the same.
#pragma once

#include <algorithm>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "common/comm/comm.h"
#include "common/error.h"
#include "common/model/layout.h"
#include "common/run/command_line.h"
#include "common/save/manifest.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/limbs.h"
#include "kernels/math.h"

namespace ladder {

struct NoiseScaleOptions {
  bool on = false;

  void add_to(CommandLine& line) {
    line.group("15_batch_size");
    line.add("--noise-scale", on,
             "estimate the gradient noise scale; needs --micro-batch or ranks");
  }

  /// @throws UserError if both batch sizes are equal, or if a section does not have the whole
  /// gradient of its parameters
  void check(const GptConfig& gpt, int64_t micro, int64_t batch) const {
    if (on && gpt.tied_head)
      throw UserError(
          "--noise-scale adds up squares section by section, and the gradient of a tied head lies "
          "in "
          "two sections; legal is --noise-scale without --tied-head");
    if (on && micro >= batch)
      throw UserError(
          "--noise-scale takes a --micro-batch below --batch {}, not {}; or more ranks than one",
          batch, micro);
  }
};

/// The squared norms of the small gradients of one step: those of micro-batches on all ranks.
class SmallNorms {
 public:
  SmallNorms(Arena& arena, const NoiseScaleOptions& options) {
    if (options.on)
      limbs_ = arena.shared(Mem::Workspace, "noise_scale.limbs", Dtype::I64, {1, kLimbs});
  }
  static int64_t bytes(const NoiseScaleOptions& options) { return options.on ? 8 * kLimbs : 0; }

  /// Forgets the previous step.
  void begin_step() {
    count_ = 0;
    if (limbs_) std::fill_n(limbs_.data<int64_t>(), kLimbs, 0);
  }

  /// Adds section s of a gradient that is alone in its buffer. Does nothing if the noise scale is
  /// off.
  /// grads F32 (layout.size())
  void add(const Ctx& ctx, const ParamLayout& layout, Tensor grads, int64_t s) {
    if (!limbs_) return;
    const Range section = layout.section(s);
    for (const ParamSpec& spec : layout.specs()) {
      if (spec.offset < section.begin || spec.offset >= section.end) continue;
      const Tensor live = flat(layout.tensor(grads, spec)).first(spec.live());
      ctx.kernels->squared_norm(ctx, limbs_, live.view({1, spec.live()}));
    }
    if (s == 0) ++count_;  // backward ends with the embedding
  }

  /// The mean of |g_small|^2 over all gradients that were added on all ranks. All ranks call it.
  /// @param parts how many small batches make the big one. The loss of a small batch is divided by
  /// the targets of the big one. So its gradient times `parts` is that of the small batch's mean
  /// @param scale the loss scale
  double mean_square(const Ctx& ctx, Comm& comm, int64_t parts, float scale) {
    const double weight = static_cast<double>(parts) / double{scale};
    ctx.synchronize();
    carry_limbs(limbs_.data<int64_t>());
    comm.all_reduce(limbs_);
    return limbs_value(limbs_.data<int64_t>()) * weight * weight /
           static_cast<double>(count_ * comm.size());
  }

 private:
  Tensor limbs_ = {};  ///< (1, kLimbs)
  int64_t count_ = 0;  ///< how many gradients were added
};

class NoiseScale {
 public:
  /// Adds a step of `big` sequences in micro-batches of `small`: the mean squared norm of the
  /// micro-batches' gradients, and the norm of the whole gradient. A step whose two sizes are equal
  /// tells nothing and is left out.
  void add_step(double g_small, double norm, int64_t small, int64_t big) {
    if (small >= big) return;
    const double g_big = norm * norm;
    const auto b = static_cast<double>(small), B = static_cast<double>(big);
    average(signal_, (B * g_big - b * g_small) / (B - b));
    average(noise_, (g_small - g_big) / (1 / b - 1 / B));
    ++steps_;
  }

  /// S / |G|^2 in sequences, both averaged over steps; 0 before the first step.
  double value() const { return signal_ == 0 ? 0 : noise_ / signal_; }

  /// What the next step needs from a checkpoint.
  nlohmann::json state() const {
    return {{"signal", signal_}, {"noise", noise_}, {"steps", steps_}};
  }
  void set_state(const nlohmann::json& state) {
    signal_ = state.at("signal");
    noise_ = state.at("noise");
    steps_ = count_in(state.at("steps"));
  }

  /// Adds the three numbers to --report; null if no step had two batch sizes.
  void report(nlohmann::json& extra) const {
    extra["noise_scale"] = nullptr;
    if (steps_ == 0) return;
    // The averages began at zero, and this much of the zero is left.
    const double seen = 1 - math::pow(kKeep, static_cast<double>(steps_));
    extra["noise_scale"] = {
        {"sequences", value()}, {"signal", signal_ / seen}, {"noise", noise_ / seen}};
  }

 private:
  static constexpr double kKeep = 0.98;  // averages over about 50 steps

  static void average(double& mean, double x) { mean = kKeep * mean + (1 - kKeep) * x; }

  double signal_ = 0, noise_ = 0;
  int64_t steps_ = 0;
};

}  // namespace ladder
