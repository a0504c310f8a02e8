// Adaptive gradient clipping, AGC: limits each row of a gradient by the weights that it would
// change.
//
//   --agc a    if |g_r| > a |w_r|:  g_r = g_r a |w_r| / |g_r|   for each row r (arXiv 2102.06171)
//              (|w_r| counts as at least 1 / 1000, because otherwise weights of 0 could never move)
//
// The global norm limits the length of a step. AGC limits it relative to the weights of each unit,
// so one exploding layer does not shorten the step of all others. A row is a unit's fan-in; a bias
// or gain is one row. As in the paper, the head is not clipped. --clip applies to what AGC has
// left.
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

struct AdaptiveClipOptions {
  float agc = 0;

  void add_to(CommandLine& line) {
    line.group("14_stability");
    line.add("--agc", agc, "largest norm of a gradient row over its weights'; 0: off");
  }

  /// @throws UserError
  void check() const {
    if (!(agc >= 0 && std::isfinite(agc))) throw UserError("--agc must be at least 0, not {}", agc);
  }
};

/// Clips row by row. Its workspace holds the norms of the rows.
class AdaptiveClip {
 public:
  AdaptiveClip(Arena& arena, const ParamLayout& layout, const AdaptiveClipOptions& options)
      : layout_(&layout), limit_(options.agc) {
    if (limit_ == 0) return;
    const int64_t rows = most_rows(layout);
    grad_norms_ = arena.alloc(Mem::Workspace, "agc.grad", Dtype::I64, {rows, kLimbs});
    weight_norms_ = arena.alloc(Mem::Workspace, "agc.weight", Dtype::I64, {rows, kLimbs});
  }

  /// Bytes of Workspace: two norms per row of the longest tensor.
  static int64_t bytes(const ParamLayout& layout, const AdaptiveClipOptions& options) {
    return options.agc == 0 ? 0 : 2 * 8 * kLimbs * most_rows(layout);
  }

  /// Clips every row of every gradient except the head's. params, grads F32 (layout.size()).
  /// Returns whether AGC is on.
  bool apply(const Ctx& ctx, Tensor grads, Tensor params) const {
    if (limit_ == 0) return false;
    for (const ParamSpec& spec : layout_->specs()) {
      if (spec.role == Role::Head) continue;
      const Tensor g = rows_of(grads, spec), w = rows_of(params, spec);
      ctx.kernels->adaptive_clip(ctx, g, norms(ctx, grad_norms_, g), norms(ctx, weight_norms_, w),
                                 limit_);
    }
    return true;
  }

 private:
  static int64_t most_rows(const ParamLayout& layout) {
    int64_t most = 1;
    for (const ParamSpec& spec : layout.specs())
      if (spec.role != Role::Head && spec.is_matrix()) most = std::max(most, spec.rows);
    return most;
  }

  /// The rows of a parameter, without padding: (R,N). A vector is one row.
  Tensor rows_of(Tensor flat_buffer, const ParamSpec& spec) const {
    const Tensor live = layout_->tensor(flat_buffer, spec).first(spec.rows);
    return spec.is_matrix() ? live : live.view({1, spec.rows});
  }

  /// The squared norm of each of `rows` (R,N). Writes the first R of `limbs` (rows,kLimbs), and
  /// returns them.
  static Tensor norms(const Ctx& ctx, Tensor limbs, Tensor rows) {
    const Tensor own = limbs.first(rows.dim(0));
    zero(ctx, own);
    ctx.kernels->squared_norm(ctx, own, rows);
    return own;
  }

  const ParamLayout* layout_;
  float limit_;
  Tensor grad_norms_, weight_norms_;
};

}  // namespace ladder
