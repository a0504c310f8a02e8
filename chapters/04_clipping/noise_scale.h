// The gradient noise scale: how large a batch is worth its cost (arXiv 1812.06162, appendix A).
//
// With G the true gradient and S the trace of the covariance of one sequence's gradient, the
// gradient of b sequences has E|g_b|^2 = |G|^2 + S / b. Two batch sizes, MBS (small) and GBS
// (big), give two equations, so that unbiased estimates of both unknowns are
//
//   |G|^2 = (GBS |g_big|^2 - MBS |g_small|^2) / (GBS - MBS)
//   S     = (|g_small|^2 - |g_big|^2) / (1 / MBS - 1 / GBS)
//
// Each is averaged over about 50 steps (over all of them early in a run), and the noise scale is S
// / |G|^2, in sequences: well below it a batch twice as large nearly halves the steps; well above
// it the larger batch is wasted. The first gradients of a run are its longest by far, and an
// average that keeps 98% a step is long in forgetting them: see the README before you trust an
// early value.
//
// |g_small|^2 is the mean over the micro-steps of GradTree that write a fresh buffer, which holds
// their gradient alone: every other one (under --accumulate running the first only). It costs a
// norm of the whole gradient for each of them.
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/run/command_line.h"
#include "common/run/manifest.h"
#include "kernels/math.h"

namespace ladder {

struct NoiseScaleOptions {
  bool on = false;

  void add_to(CommandLine& line) {
    line.group("04_clipping");
    line.add("--noise-scale", on, "estimate the gradient noise scale; needs --micro-batch");
  }

  /// @throws UserError if the two batch sizes are one
  void check(int64_t micro, int64_t batch) const {
    if (on && micro >= batch)
      throw UserError("--noise-scale takes a --micro-batch below --batch {}, not {}", batch, micro);
  }
};

class NoiseScale {
 public:
  /// The gradient of one micro-batch, as it lies in its buffer: scaled for a mean over `big`
  /// sequences, so it counts big / small times.
  void add_small(double norm, int64_t small, int64_t big) {
    const double weight = static_cast<double>(big) / static_cast<double>(small);
    small_ += norm * weight * norm * weight;
    ++count_;
  }

  /// Ends a step of `big` sequences in micro-batches of `small`, with gradient norm `norm`.
  void end_step(double norm, int64_t small, int64_t big) {
    const double g_big = norm * norm, g_small = small_ / static_cast<double>(count_);
    const bool usable = count_ > 0 && small < big;
    skip_step();
    if (!usable) return;
    const auto b = static_cast<double>(small), B = static_cast<double>(big);
    average(signal_, (B * g_big - b * g_small) / (B - b));
    average(noise_, (g_small - g_big) / (1 / b - 1 / B));
    ++steps_;
  }

  /// Ends a step that does not count: what add_small() was told of it is forgotten.
  void skip_step() {
    small_ = 0;
    count_ = 0;
  }

  /// S / |G|^2 in sequences, both averaged over steps; 0 before the first step.
  double value() const { return signal_ == 0 ? 0 : noise_ / signal_; }

  /// What a checkpoint must hold for the next step.
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
    // The averages began at zero, of which so much is left.
    const double seen = 1 - math::pow(kKeep, static_cast<double>(steps_));
    extra["noise_scale"] = {
        {"sequences", value()}, {"signal", signal_ / seen}, {"noise", noise_ / seen}};
  }

 private:
  static constexpr double kKeep = 0.98;  // averages over about 50 steps

  static void average(double& mean, double x) { mean = kKeep * mean + (1 - kKeep) * x; }

  double small_ = 0;   // sum of |g_small|^2 in this step
  int64_t count_ = 0;  // of how many micro-batches
  double signal_ = 0, noise_ = 0;
  int64_t steps_ = 0;
};

}  // namespace ladder
