// --agc of chapter 14 on ranks: where a row lies on several ranks, its squared norm is the sum over
// its parts.
//
// Parts of a tensor begin and end at multiples of 64 elements, and so within rows:
//
//   rank 0   row 0 | row 1 | half of row 2
//   rank 1   the other half of row 2 | row 3 | ...
//
// The limbs of squared norms are integers (kernels/limbs.h). Each rank computes those of its parts.
// An all-reduce of 2 * 8 kLimbs bytes for each row, for gradient and weights, gives every rank the
// norms of all rows, with the bits of chapter 14. A squared norm is summed in leaves of 16
// elements, and none may cross the end of a row. So a row's length must be a multiple of 16.
#pragma once

#include <algorithm>
#include <cstdint>

#include "chapters/14_stability/adaptive_clip.h"
#include "common/comm/comm.h"
#include "common/error.h"
#include "common/model/layout.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/limbs.h"
#include "kernels/transfer.h"

namespace ladder {

class RowClip {
 public:
  /// @param shard the parts that this rank updates
  /// @throws UserError if a leaf of a norm would lie in two rows
  RowClip(Arena& arena, const ParamLayout& params, const ParamLayout& shard,
          const AdaptiveClipOptions& options)
      : params_(params), shard_(shard), limit_(options.agc) {
    if (limit_ == 0) return;
    for (const ParamSpec& spec : params.specs())
      if (spec.is_matrix() && columns(spec) % kNormLeaf != 0 && params.shards() > 1)
        throw UserError("--agc: on ranks --channels must be a multiple of {}", kNormLeaf);
    limbs_ = arena.shared(Mem::Workspace, "agc", Dtype::I64,
                          {bytes(params, options) / (8 * kLimbs), kLimbs});
  }

  /// Bytes of Workspace: as many as in chapter 14, two norms for each row of the longest tensor.
  static int64_t bytes(const ParamLayout& params, const AdaptiveClipOptions& options) {
    return AdaptiveClip::bytes(params, options);
  }

  /// Clips every row of every gradient except the head's. All ranks call it. Returns whether AGC is
  /// on.
  bool apply(const Ctx& ctx, const Flat& grads, const Flat& weights, Comm& comm) const {
    if (limit_ == 0) return false;
    for (const ParamSpec& spec : params_.specs()) {
      if (spec.role == Role::Head) continue;
      const int64_t R = rows(spec);
      const Tensor both = limbs_.first(2 * R), of_grad = both.first(R),
                   of_weight = both.slice(R, R);
      zero(ctx, both);
      const ParamSpec* own = shard_.find(spec.name);  // null: other ranks have all of it
      if (own) {
        add_norms(ctx, of_grad, grads, *own);
        add_norms(ctx, of_weight, weights, *own);
      }
      ctx.synchronize();
      comm.all_reduce(both);
      if (!own) continue;
      for_pieces(grads, *own, [&](int64_t row, Tensor g) {
        const int64_t n = g.dim(0);
        ctx.kernels->adaptive_clip(ctx, g, of_grad.slice(row, n), of_weight.slice(row, n), limit_);
      });
    }
    return true;
  }

 private:
  /// A vector is one row.
  static int64_t rows(const ParamSpec& spec) { return spec.is_matrix() ? spec.rows : 1; }
  static int64_t columns(const ParamSpec& spec) {
    return spec.is_matrix() ? spec.shape.dims[1] : spec.rows;
  }

  /// Calls use(first row, piece (R,n)) for this rank's part of a tensor: the rest of a row, then
  /// whole rows, then the beginning of a row.
  template <class Use>
  void for_pieces(const Flat& buffer, const ParamSpec& spec, Use&& use) const {
    const Tensor part = flat(shard_.tensor(buffer, spec));
    const int64_t N = columns(spec), end = spec.part.begin + spec.live();
    for (int64_t at = spec.part.begin; at < end;) {
      const int64_t in_row = at % N;
      const int64_t R = in_row == 0 ? std::max<int64_t>(1, (end - at) / N) : 1;
      const int64_t n = std::min(N - in_row, end - at);
      use(at / N, part.slice(at - spec.part.begin, R * n).view({R, n}));
      at += R * n;
    }
  }
  void add_norms(const Ctx& ctx, Tensor limbs, const Flat& buffer, const ParamSpec& spec) const {
    for_pieces(buffer, spec, [&](int64_t row, Tensor piece) {
      ctx.kernels->squared_norm(ctx, limbs.slice(row, piece.dim(0)), piece);
    });
  }

  ParamLayout params_, shard_;
  float limit_;
  Tensor limbs_;
};

}  // namespace ladder
