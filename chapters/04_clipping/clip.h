// What a step must not do: update by a gradient that is NaN or infinite, or by one that is too
// long.
//
//   --clip c   if |g| > c:  g = g c / |g|      |g|: norm over all parameters (arXiv 1211.5063)
#pragma once

#include <cmath>
#include <string>

#include "common/error.h"
#include "common/run/command_line.h"
#include "kernels/kernels.h"

namespace ladder {

struct ClipOptions {
  float clip = 0;

  void add_to(CommandLine& line) {
    line.group("04_clipping");
    line.add("--clip", clip, "largest global norm of the gradient; 0: off");
  }

  /// @throws UserError
  void check() const {
    if (!(clip >= 0 && std::isfinite(clip)))
      throw UserError("--clip must be at least 0, not {}", clip);
  }
};

/// Why there must be no update: a single NaN or Inf would reach all weights. Empty: an update is
/// fine.
/// @param norm global norm of the gradient; NaN if any element is NaN or infinite
inline std::string not_finite(double loss, double norm) {
  if (!std::isfinite(loss)) return "the loss is NaN or infinite";
  if (!std::isfinite(norm)) return "the gradient has a NaN or an Inf";
  return "";
}

/// Scales the gradient down to norm `limit` if its norm is larger. limit 0: never scales.
/// @param grads F32 flat
/// @param norm  the global norm of grads
inline void clip_global_norm(const Ctx& ctx, Tensor grads, double norm, float limit) {
  if (limit > 0 && norm > double{limit})
    ctx.kernels->scale(ctx, grads, static_cast<float>(double{limit} / norm));
}

}  // namespace ladder
