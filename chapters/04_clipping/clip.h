// Gradient clipping: by the global norm, and adaptively row by row (AGC).
//
//   --clip c   if |g| > c:  g = g c / |g|             all parameters together (arXiv 1211.5063)
//   --agc a    if |g_r| > a |w_r|:  g_r = g_r a |w_r| / |g_r|   for each row r (arXiv 2102.06171)
//
// The global norm bounds the length of a step. AGC bounds it relative to each unit's weights, so
// one exploding layer does not shorten the step of all others. As in its paper the head is left
// out; a row is a unit's fan-in, a bias or gain is one row.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/error.h"
#include "common/model/layout.h"
#include "common/run/command_line.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/transfer.h"

namespace ladder {

struct ClipOptions {
  float clip = 0;
  float agc = 0;

  void add_to(CommandLine& line) {
    line.group("04_clipping");
    line.add("--clip", clip, "largest global norm of the gradient; 0: off");
    line.add("--agc", agc, "largest norm of a gradient row over its weights'; 0: off");
  }

  /// @throws UserError
  void check() const {
    if (!(clip >= 0 && std::isfinite(clip)))
      throw UserError("--clip must be at least 0, not {}", clip);
    if (!(agc >= 0 && std::isfinite(agc))) throw UserError("--agc must be at least 0, not {}", agc);
  }
};

/// Scales the gradient down to norm `limit` if its norm is larger. limit 0: never.
/// @param grads F32 flat; norm its global norm
inline void clip_global_norm(const Ctx& ctx, Tensor grads, double norm, float limit) {
  if (limit > 0 && norm > double{limit})
    ctx.kernels->scale(ctx, grads, static_cast<float>(double{limit} / norm));
}

/// Adaptive gradient clipping, with the rows' norms as its workspace.
class AdaptiveClip {
 public:
  AdaptiveClip(Arena& arena, const ParamLayout& layout, const ClipOptions& options)
      : layout_(&layout), limit_(options.agc) {
    if (limit_ == 0) return;
    const int64_t rows = most_rows(layout);
    grad_norms_ = arena.alloc(Mem::Workspace, "agc.grad", Dtype::I64, {rows, kLimbs});
    weight_norms_ = arena.alloc(Mem::Workspace, "agc.weight", Dtype::I64, {rows, kLimbs});
  }

  /// Bytes of Workspace: two norms a row of the longest tensor.
  static int64_t bytes(const ParamLayout& layout, const ClipOptions& options) {
    return options.agc == 0 ? 0 : 2 * 8 * kLimbs * most_rows(layout);
  }

  /// Clips every row of every gradient but the head's. params, grads F32 (layout.size()).
  /// Returns whether it is on.
  bool apply(const Ctx& ctx, Tensor grads, Tensor params) {
    if (limit_ == 0) return false;
    for (const ParamSpec& spec : layout_->specs()) {
      if (spec.role == Role::Head) continue;
      const Tensor grad = as_rows(grads, spec), weight = as_rows(params, spec);
      const int64_t rows = grad.dim(0);
      ctx.kernels->adaptive_clip(ctx, grad, norms(ctx, grad_norms_.first(rows), grad),
                                 norms(ctx, weight_norms_.first(rows), weight), limit_);
    }
    return true;
  }

 private:
  /// (R,N) of a matrix, (1,N) of a vector; no padding.
  static Tensor as_rows(Tensor flat, const ParamSpec& spec) {
    const Tensor live = ParamLayout::tensor(flat, spec).first(spec.rows);
    return spec.is_matrix() ? live : live.view({1, spec.rows});
  }
  static int64_t most_rows(const ParamLayout& layout) {
    int64_t most = 1;
    for (const ParamSpec& spec : layout.specs())
      if (spec.is_matrix() && spec.role != Role::Head) most = std::max(most, spec.rows);
    return most;
  }
  static Tensor norms(const Ctx& ctx, Tensor limbs, Tensor x) {
    zero(ctx, limbs);
    ctx.kernels->squared_norm(ctx, limbs, x);
    return limbs;
  }

  const ParamLayout* layout_;
  float limit_;
  Tensor grad_norms_, weight_norms_;
};

}  // namespace ladder
