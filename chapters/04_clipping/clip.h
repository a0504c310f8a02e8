// Gradient clipping: by the global norm, and adaptively row by row (AGC).
//
//   --clip c   if |g| > c:  g = g c / |g|             all parameters together (arXiv 1211.5063)
//   --agc a    if |g_r| > a |w_r|:  g_r = g_r a |w_r| / |g_r|   for each row r (arXiv 2102.06171)
//              (a |w_r| at least a / 1000: else what starts at 0 could never move)
//
// The global norm bounds the length of a step. AGC bounds it relative to each unit's weights, so
// one exploding layer does not shorten the step of all others. As in its paper the head is left
// out; a row is a unit's fan-in, a bias or gain is one row. With both, AGC comes first.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/comm/comm.h"
#include "common/error.h"
#include "common/model/layout.h"
#include "common/model/rows.h"
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
      : AdaptiveClip(arena, layout, layout, options) {}
  /// @param own what this rank holds of the model `layout`: a shard cuts rows, too
  AdaptiveClip(Arena& arena, const ParamLayout& layout, const ParamLayout& own,
               const ClipOptions& options)
      : layout_(&layout), own_(&own), limit_(options.agc) {
    if (limit_ == 0) return;
    const int64_t rows = most_rows(layout);
    grad_norms_ = arena.alloc(Mem::Workspace, "agc.grad", Dtype::I64, {rows, kLimbs});
    weight_norms_ = arena.alloc(Mem::Workspace, "agc.weight", Dtype::I64, {rows, kLimbs});
  }

  /// Bytes of Workspace: two norms a row of the longest tensor.
  static int64_t bytes(const ParamLayout& layout, const ClipOptions& options) {
    return options.agc == 0 ? 0 : 2 * 8 * kLimbs * most_rows(layout);
  }

  /// Clips every row of every gradient but the head's. params, grads F32 (layout.size()), or what
  /// this rank holds of them. Returns whether it is on.
  /// @param others whose ranks hold the other shards; all call this
  bool apply(const Ctx& ctx, Tensor grads, Tensor params, Comm* others = nullptr) {
    if (limit_ == 0) return false;
    for (const ParamSpec& spec : layout_->specs()) {
      if (spec.role == Role::Head) continue;
      const int64_t rows = rows_of(spec);
      const Tensor grad_norms = norms(ctx, grad_norms_.first(rows), spec, grads, others);
      const Tensor weight_norms = norms(ctx, weight_norms_.first(rows), spec, params, others);
      for (const RowsHere& r : rows_here(*own_, grads, spec))
        ctx.kernels->adaptive_clip(ctx, r.data, r.of(grad_norms), r.of(weight_norms), limit_);
    }
    return true;
  }

 private:
  static int64_t most_rows(const ParamLayout& layout) {
    int64_t most = 1;
    for (const ParamSpec& spec : layout.specs())
      if (spec.role != Role::Head) most = std::max(most, rows_of(spec));
    return most;
  }
  /// The squared norm of each row of `spec`. limbs (rows, kLimbs), written
  Tensor norms(const Ctx& ctx, Tensor limbs, const ParamSpec& spec, Tensor flat_buffer,
               Comm* others) const {
    zero(ctx, limbs);
    const ParamSpec* own = own_->find(spec.name);
    if (own && !own->is_copy)
      for (const RowsHere& r : rows_here(*own_, flat_buffer, spec))
        ctx.kernels->squared_norm(ctx, r.of(limbs), r.data);
    if (others) others->all_reduce(limbs);
    return limbs;
  }

  const ParamLayout *layout_, *own_;
  float limit_;
  Tensor grad_norms_, weight_norms_;
};

}  // namespace ladder
