// Loss scaling (arXiv 1710.03740, section 3.2): keeps FP16 gradients from becoming 0. The scale
// adapts as in PyTorch's GradScaler.
//
// F16 has no numbers below 2^-24. In a batch of many tokens, many gradients of activations are
// smaller. If the loss is multiplied by S, all gradients are multiplied by S and move up. The FP32
// gradients of the parameters are then divided by S. S is a power of two, so neither the product
// nor the division changes a digit. If S is too large, F16 overflows to infinity. So S adapts:
//
//   an Inf or a NaN in the gradients:  skip the update, S = S / 2, but not below 1 (an S that began
//                                      below 1 stays)
//   `window` good steps in a row:      S = 2 S, but not above 2^24
//
// The limit of 2^24 is arbitrary. Backward of a batch of n tokens starts from S / n, and F16 ends
// at 2^16. So a batch of more than 256 tokens may reach the limit without an overflow.
//
// S does not change during a step. Overflow is looked for in the sum over all micro-batches. So the
// step is the same, however its batch is cut.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chapters/04_clipping/clip.h"
#include "chapters/05_mixed_precision/precision.h"
#include "common/error.h"
#include "common/run/command_line.h"
#include "common/save/manifest.h"

namespace ladder {

struct LossScaleOptions {
  float initial = 65536;
  bool fixed = false;
  int64_t window = 200;

  void add_to(CommandLine& line) {
    line.group("05_mixed_precision");
    line.add("--loss-scale", initial, "of fp16, at the first step; a power of two");
    line.add("--fixed-loss-scale", fixed, "an experiment of fp16: the scale never changes");
    line.add("--loss-scale-window", window, "of fp16: good steps until the scale doubles");
  }

  /// @throws UserError
  void check() const {
    if (!legal(initial))
      throw UserError("--loss-scale must be a power of two from 2^-24 to 2^24, not {}", initial);
    if (window < 1) throw UserError("--loss-scale-window must be at least 1, not {}", window);
  }

  static bool legal(double scale) {
    return scale >= 0x1p-24 && scale <= 0x1p24 && is_power_of_two(scale);
  }
};

class LossScaler {
 public:
  /// The scale stays 1 unless the precision is fp16.
  LossScaler(const LossScaleOptions& options, const PrecisionOptions& precision)
      : on_(precision.dtype() == Dtype::F16),
        options_(options),
        scale_(on_ ? options.initial : 1.0f) {}

  /// The factor for the loss of this step.
  float scale() const { return scale_; }

  /// Divides the gradients by the scale. grads F32 flat
  void unscale(const Ctx& ctx, Tensor grads) const {
    if (scale_ != 1) ctx.kernels->scale(ctx, grads, 1 / scale_);
  }

  /// Ends a step that had this loss, and this norm of its gradients after unscale(). Returns why
  /// there must be no update, or an empty string if there must be one. If only the loss is NaN or
  /// infinite, there is no update either, but scale and good steps stay as they are: the gradients
  /// have not overflowed.
  std::string end_step(double loss, double norm) {
    const bool overflow = on_ && !std::isfinite(norm);
    const std::string reason =
        overflow ? fmt::format("overflow at loss scale {}", scale_) : not_finite(loss, norm);
    if (overflow) {
      ++skipped_;
      good_ = 0;
      if (!options_.fixed && scale_ > 1) scale_ /= 2;
    } else if (on_ && reason.empty() && ++good_ >= options_.window) {
      good_ = 0;
      if (!options_.fixed) scale_ = std::min(kLargest, scale_ * 2);
    }
    return reason;
  }

  /// What the next step needs from a checkpoint. The state of another precision is ignored.
  nlohmann::json state() const {
    if (!on_) return nullptr;
    return {{"scale", scale_}, {"good", good_}, {"skipped", skipped_}};
  }
  void set_state(const nlohmann::json& state) {
    if (!on_ || state.is_null()) return;
    const double scale = state.at("scale");
    if (!LossScaleOptions::legal(scale)) throw UserError("scale {}", scale);
    scale_ = static_cast<float>(scale);
    good_ = count_in(state.at("good"));
    skipped_ = count_in(state.at("skipped"));
  }

  /// Adds the scale and the number of skipped steps to --report.
  void report(nlohmann::json& extra) const {
    if (on_) extra["loss_scale"] = {{"scale", scale_}, {"skipped", skipped_}};
  }

 private:
  static constexpr float kLargest = 0x1p24f;

  bool on_;
  LossScaleOptions options_;
  float scale_;
  int64_t good_ = 0;     // steps in a row without overflow
  int64_t skipped_ = 0;  // steps
};

}  // namespace ladder
