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
//
// Each all-reduce waits for the device, so small tensors share one. The workspace has room for the
// tensor with the most rows. Neighbors that fit into it together are a *pass*, and share one
// all-reduce. GPT-2 124M has 148 tensors in 3 passes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

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
    for (const ParamSpec& spec : params.specs())
      if (spec.role != Role::Head) add(spec);
  }

  /// Bytes of Workspace, as in chapter 14: two norms for each row of the tensor with most rows.
  static int64_t bytes(const ParamLayout& params, const AdaptiveClipOptions& options) {
    return AdaptiveClip::bytes(params, options);
  }

  /// Clips every row of every gradient except the head's. All ranks call it. Returns whether AGC is
  /// on.
  bool apply(const Ctx& ctx, const Flat& grads, const Flat& weights, Comm& comm) const {
    if (limit_ == 0) return false;
    for (const Pass& pass : passes_) {
      const Tensor limbs = limbs_.first(rows(pass));
      zero(ctx, limbs);
      for (const Norms& norms : pass) {
        add_norms(ctx, of_gradient(norms), grads, norms.tensor);
        add_norms(ctx, of_weight(norms), weights, norms.tensor);
      }
      ctx.synchronize();
      comm.all_reduce(limbs);
      for (const Norms& norms : pass)
        for_pieces(grads, norms.tensor, [&](int64_t row, Tensor g) {
          const int64_t n = g.dim(0);
          ctx.kernels->adaptive_clip(ctx, g, of_gradient(norms).slice(row, n),
                                     of_weight(norms).slice(row, n), limit_);
        });
    }
    return true;
  }

 private:
  /// Where the squared norms of a tensor's rows are, in `limbs_`.
  struct Norms {
    std::string tensor;   ///< its name
    int64_t begin, rows;  ///< those of the gradient; those of the weights come next
  };
  using Pass = std::vector<Norms>;

  /// Puts a tensor into the last pass, or into a new one if that has no room.
  void add(const ParamSpec& spec) {
    const int64_t R = rows(spec);
    if (passes_.empty() || rows(passes_.back()) + 2 * R > limbs_.dim(0)) passes_.emplace_back();
    passes_.back().push_back({spec.name, rows(passes_.back()), R});
  }
  static int64_t rows(const Pass& pass) {
    return pass.empty() ? 0 : pass.back().begin + 2 * pass.back().rows;
  }
  Tensor of_gradient(const Norms& n) const { return limbs_.slice(n.begin, n.rows); }
  Tensor of_weight(const Norms& n) const { return limbs_.slice(n.begin + n.rows, n.rows); }

  /// A vector is one row.
  static int64_t rows(const ParamSpec& spec) { return spec.is_matrix() ? spec.rows : 1; }
  static int64_t columns(const ParamSpec& spec) {
    return spec.is_matrix() ? spec.shape.dims[1] : spec.rows;
  }

  /// Calls use(first row, piece (R,n)) for this rank's part of a tensor: the rest of a row, then
  /// whole rows, then the beginning of a row.
  template <class Use>
  void for_pieces(const Flat& buffer, const std::string& tensor, Use&& use) const {
    const ParamSpec* const spec = shard_.find(tensor);
    if (!spec) return;  // other ranks have all of it
    const Tensor part = flat(shard_.tensor(buffer, *spec));
    const int64_t N = columns(*spec), end = spec->part.begin + spec->live();
    for (int64_t at = spec->part.begin; at < end;) {
      const int64_t in_row = at % N;
      const int64_t R = in_row == 0 ? std::max<int64_t>(1, (end - at) / N) : 1;
      const int64_t n = std::min(N - in_row, end - at);
      use(at / N, part.slice(at - spec->part.begin, R * n).view({R, n}));
      at += R * n;
    }
  }
  void add_norms(const Ctx& ctx, Tensor limbs, const Flat& buffer,
                 const std::string& tensor) const {
    for_pieces(buffer, tensor, [&](int64_t row, Tensor piece) {
      ctx.kernels->squared_norm(ctx, limbs.slice(row, piece.dim(0)), piece);
    });
  }

  ParamLayout params_, shard_;
  float limit_;
  Tensor limbs_;
  std::vector<Pass> passes_;
};

}  // namespace ladder
