// --watch-every K: norms of every tensor, in each K-th step.
//
//   |g|, |w|, |u|    norms of gradient, weight and update: u = w after the step - w before it
//   |u| / |w|        the update ratio, with w before the step
//   largest, zeros   the largest |g_i|, and the share of g_i that are 0
//   rms              root mean square of the residual stream, before the first block and after each
//   |g_r|            norm of the gradient of each rank's share of the batch
//
// Each norm is a sum of squares in limbs (kernels/limbs.h): integers, which add up in any order. So
// ranks that hold parts of a tensor add their limbs and have the norm of the whole, with the same
// bits on every number of ranks. The squares of all gradients add up to that of the global norm.
//
// With ZeRO-1 no rank has the whole update. Each copies the weights of its shard before the update:
// 4 bytes for each parameter. The copy becomes the update.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/29_monitor/event_file.h"
#include "chapters/29_monitor/tensor_sums.h"
#include "common/comm/comm.h"
#include "common/error.h"
#include "common/model/layout.h"
#include "common/run/command_line.h"
#include "common/save/manifest.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/limbs.h"
#include "kernels/transfer.h"

namespace ladder {

struct WatchOptions {
  int64_t every = 0;

  void add_to(CommandLine& line) {
    line.group("29_monitor");
    line.add("--watch-every", every, "steps between looks into every tensor; 0: never");
  }
  void check() const { require_range("--watch-every", every, 0, kMaxCount); }
};

class Watch {
 public:
  /// @param params of the whole model
  /// @param shard what this rank updates
  /// @param stream elements of the residual stream of a micro-batch on this rank
  Watch(Arena& arena, const ParamLayout& params, const ParamLayout& shard, Dtype dtype,
        int64_t stream, const WatchOptions& options)
      : params_(params), shard_(shard), every_(options.every), seen_(params) {
    if (every_ == 0) return;
    if (stream % kNormLeaf != 0)
      throw UserError(
          "--watch-every: a micro-batch's residual stream has {} numbers; legal is a multiple "
          "of {}",
          stream, kNormLeaf);
    old_ = arena.alloc(Mem::Workspace, "watch.old", Dtype::F32, {shard.size()});
    seen_.allocate(arena);
    if (dtype != Dtype::F32)
      wide_ = arena.alloc(Mem::Workspace, "watch.wide", Dtype::F32, {stream});
  }

  /// Bytes of Workspace.
  static int64_t bytes(const ParamLayout& params, const ParamLayout& shard, Dtype dtype,
                       int64_t stream, const WatchOptions& options) {
    if (options.every == 0) return 0;
    return 4 * shard.size() + TensorSums::bytes(params) + (dtype == Dtype::F32 ? 0 : 4 * stream);
  }

  /// Begins step `step`: decides whether it is watched, and sets all sums to 0.
  void begin(const Ctx& ctx, int64_t step) {
    on_ = every_ > 0 && step % every_ == 0;
    is_new_ = false;
    if (!on_) return;
    zero(ctx, seen_.sums());
    zero(ctx, seen_.largest());
    seen_.elements = 0;
  }

  /// @param x the input of block l, or of the last norm if l is L: any dtype, (MBS,T,C)
  void stream(const Ctx& ctx, int64_t l, Tensor x) {
    if (!on_) return;
    if (l == 0) seen_.elements += x.size();
    Tensor row = x.view({1, x.size()});
    if (x.dtype != Dtype::F32) {
      const Tensor wide = wide_.first(x.size()).view(row.shape);  // rows may be fewer than memory
      ctx.kernels->cast(ctx, wide, row);
      row = wide;
    }
    ctx.kernels->squared_norm(ctx, seen_.limbs_of_stream(l), row);
  }

  /// Call it before section s is summed over ranks.
  /// @param grads this rank's own gradients: F32 (params.grads().size())
  void own_gradient(const Ctx& ctx, Tensor grads, int64_t s, int64_t rank) {
    if (!on_) return;
    const Tensor section = params_.grads().section_of(grads, s);
    if (section.size() == 0) return;
    ctx.kernels->squared_norm(ctx, seen_.limbs_of_rank(rank), section.view({1, section.size()}));
  }

  /// Gradients before clipping, and weights before the update.
  void before(const Ctx& ctx, const Flat& grads, const Flat& weights) {
    if (!on_) return;
    for_parts(grads, [&](int64_t i, Tensor part) {
      ctx.kernels->squared_norm(ctx, seen_.limbs_of(i, Of::Gradient), part);
      count(ctx, i, part);
    });
    for_parts(weights, [&](int64_t i, Tensor part) {
      ctx.kernels->squared_norm(ctx, seen_.limbs_of(i, Of::Weight), part);
    });
    zero(ctx, old_);
    add(ctx, weights);
  }
  /// Weights after the update. A skipped step does not call it: its update is 0.
  void after(const Ctx& ctx, const Flat& weights) {
    if (!on_) return;
    ctx.kernels->scale(ctx, old_, -1);
    add(ctx, weights);
    for_parts(Shard(old_), [&](int64_t i, Tensor part) {
      ctx.kernels->squared_norm(ctx, seen_.limbs_of(i, Of::Update), part);
    });
  }

  /// Adds up the sums of all ranks. From here on report(), seen() and scalars() are of this step.
  /// @param norm the global norm of the gradient
  void finish(const Ctx& ctx, Comm& comm, double norm) {
    if (!on_) return;
    rank_ = comm.rank();
    ctx.synchronize();
    seen_.carry();
    const int64_t sent = comm.statistics().wire_bytes();
    comm.all_reduce(seen_.sums());
    comm.all_reduce(seen_.largest(), Combine::Max);
    sent_ = comm.statistics().wire_bytes() - sent;
    seen_.elements *= comm.size();
    on_ = false;
    is_new_ = true;
    const double sum = seen_.whole(Of::Gradient);
    CHECK(sum == norm || (std::isnan(sum) && std::isnan(norm)), "tensors have {}, all of it {}",
          sum, norm);
  }

  /// Sets the entry "watch" of --report: bytes that this rank sent in the last watched step.
  void report(nlohmann::json& extra) const {
    if (every_ == 0) return;
    const int64_t predicted = sent_ ? TensorSums::traffic(params_, rank_) : 0;
    extra["watch"] = {{"predicted", predicted}, {"measured", sent_}};
  }

  /// The sums of the last step; null if it was not watched.
  const TensorSums* seen() const { return is_new_ ? &seen_ : nullptr; }
  std::vector<Scalar> scalars() const { return is_new_ ? seen_.scalars() : std::vector<Scalar>{}; }

 private:
  /// Calls use(i, part) for each tensor i of which this rank has a part: F32 (1,n).
  template <class Use>
  void for_parts(const Flat& buffer, Use&& use) const {
    int64_t i = -1;
    for (const ParamSpec& spec : shard_.specs()) {
      do ++i;
      while (params_.specs()[static_cast<size_t>(i)].name != spec.name);
      const Tensor part = flat(shard_.tensor(buffer, spec)).first(spec.live());
      if (part.size() > 0) use(i, part.view({1, part.size()}));
    }
  }
  /// old_ += weights
  void add(const Ctx& ctx, const Flat& weights) const {
    for (int64_t s = 0; s < shard_.sections(); ++s)
      if (const Tensor old = shard_.section_of(Shard(old_), s); old.size() > 0)
        ctx.kernels->add(ctx, old, old, shard_.section_of(weights, s));
  }
  /// Finds the largest magnitude and counts zeros, on the host. A device copies its gradient there.
  void count(const Ctx& ctx, int64_t i, Tensor part) const {
    const HostCopy copy = HostCopy::of(ctx, part);
    const float* const x = copy.tensor().data<float>();
    uint32_t most = 0;
    int64_t zeros = 0;
    for (int64_t k = 0; k < part.size(); ++k) {
      const uint32_t size =
          std::bit_cast<uint32_t>(x[k]) & 0x7FFFFFFF;  // its bits are in the order of |x|, NaN last
      most = std::max(most, size);
      zeros += size == 0;
    }
    int64_t& largest = seen_.largest().data<int64_t>()[i];
    largest = std::max<int64_t>(largest, most);
    seen_.zeros(i) += zeros;
  }

  ParamLayout params_, shard_;
  int64_t every_;
  // This step is a look, and finish() is to come; finish() was called in this step.
  bool on_ = false, is_new_ = false;
  int64_t sent_ = 0, rank_ = 0;
  TensorSums seen_;
  Tensor old_;   ///< F32 (shard.size()): weights before the update, then the update
  Tensor wide_;  ///< F32 (stream): a 16-bit stream, made wider
};

}  // namespace ladder
