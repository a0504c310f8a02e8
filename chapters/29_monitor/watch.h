// --watch-every K: looks into every tensor, each K steps.
//
//   |g|, |w|, |u|    norms of gradient, weight and update, u = w after - w before
//   |u| / |w|        how far a step moves the tensor
//   largest, zeros   the largest |g_i|, and the share of g_i that are 0
//   rms              root mean square of the residual stream, before the first block and after each
//   |g_r|            norm of the gradient of each rank's share of the batch
//
// Each norm is a sum of squares in limbs (kernels/limbs.h): integers, which are added in any order.
// So ranks that hold parts of a tensor add their limbs and have the norm of the whole, with the
// same bits on every number of ranks; and the limbs of all gradients add up to those of the global
// norm.
//
// With ZeRO-1 no rank has the whole update. Each keeps a copy of its old weights for the length of
// a watched step: 4 bytes for each parameter of its shard.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/29_monitor/event_file.h"
#include "common/comm/chunks.h"
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

/// |u| / |w|; 0 for a tensor of zeros that does not move, else infinite.
inline double update_ratio(double update, double weight) {
  return update == 0 ? 0 : update / weight;
}

/// What is known of a tensor after a watched step.
struct TensorFacts {
  std::string name;
  double gradient, weight, update;  ///< norms
  double largest;                   ///< of the gradient
  double zeros;                     ///< share of the gradient
};

class Watch {
 public:
  /// @param params of the whole model; @param shard what this rank updates
  /// @param stream elements of a residual stream of a micro-batch on this rank
  Watch(Arena& arena, const ParamLayout& params, const ParamLayout& shard, Dtype dtype,
        int64_t stream, const WatchOptions& options)
      : params_(params), shard_(shard), every_(options.every) {
    if (every_ == 0) return;
    if (stream % kNormLeaf != 0)
      throw UserError("--watch-every: a sequence must have a multiple of {} numbers in the stream",
                      kNormLeaf);
    old_ = arena.alloc(Mem::Workspace, "watch.old", Dtype::F32, {shard.size()});
    sums_ = arena.shared(Mem::Workspace, "watch.sums", Dtype::I64, {numbers(params)});
    largest_ = arena.shared(Mem::Workspace, "watch.largest", Dtype::I64, {tensors()});
    if (dtype != Dtype::F32)
      wide_ = arena.alloc(Mem::Workspace, "watch.wide", Dtype::F32, {stream});
  }

  /// Bytes of Workspace.
  static int64_t bytes(const ParamLayout& params, const ParamLayout& shard, Dtype dtype,
                       int64_t stream, const WatchOptions& options) {
    if (options.every == 0) return 0;
    return 4 * shard.size() + message(params) + (dtype == Dtype::F32 ? 0 : 4 * stream);
  }
  /// Bytes that rank r of N sends in a watched step: two all-reduces.
  static int64_t traffic(const ParamLayout& shard, const ParamLayout& params) {
    const int64_t N = params.shards();
    int64_t sent = 0;
    for (const int64_t n : {numbers(params), std::ssize(params.specs())}) {
      const int64_t chunk = Chunks{n, N}[shard.rank()].size();
      sent += 8 * (n - chunk + (N - 1) * chunk);
    }
    return sent;
  }

  /// Whether step `step` is watched.
  void begin(const Ctx& ctx, int64_t step) {
    on_ = every_ > 0 && step % every_ == 0;
    is_new_ = false;
    if (!on_) return;
    zero(ctx, sums_);
    zero(ctx, largest_);
    positions_ = 0;
  }

  /// Forward has the input of block l, or the last norm's. Any dtype, (MBS,T,C)
  void stream(const Ctx& ctx, int64_t l, Tensor x) {
    if (!on_) return;
    if (l == 0) positions_ += x.size();
    Tensor row = x.view({1, x.size()});
    if (x.dtype != Dtype::F32) {
      ctx.kernels->cast(ctx, wide_.view(row.shape), row);
      row = wide_.view(row.shape);
    }
    ctx.kernels->squared_norm(ctx, limbs(3 * tensors() + l), row);
  }

  /// Section s of `grads` is this rank's own gradient, not yet summed over ranks. F32
  /// (layout.grads().size())
  void own_gradient(const Ctx& ctx, Tensor grads, int64_t s, int64_t rank) {
    if (!on_) return;
    const Tensor section = params_.grads().section_of(grads, s);
    if (section.size() == 0) return;
    ctx.kernels->squared_norm(ctx, limbs(3 * tensors() + streams() + rank),
                              section.view({1, section.size()}));
  }

  /// Gradients before clipping, and weights before the update.
  void before(const Ctx& ctx, const Flat& grads, const Flat& weights) {
    if (!on_) return;
    for_parts(grads, [&](int64_t i, Tensor part) {
      ctx.kernels->squared_norm(ctx, limbs(3 * i), part);
      count(ctx, i, part);
    });
    for_parts(weights, [&](int64_t i, Tensor part) {
      ctx.kernels->squared_norm(ctx, limbs(3 * i + 1), part);
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
      ctx.kernels->squared_norm(ctx, limbs(3 * i + 2), part);
    });
  }

  /// Adds what all ranks have seen. From here on the numbers below are those of this step.
  /// @param norm the global norm of the gradient
  void finish(const Ctx& ctx, Comm& comm, double norm) {
    if (!on_) return;
    ctx.synchronize();
    const int64_t sent = comm.statistics().wire_bytes();
    comm.all_reduce(sums_);
    comm.all_reduce(largest_, Combine::Max);
    sent_ = comm.statistics().wire_bytes() - sent;
    positions_ *= comm.size();
    on_ = false;
    is_new_ = true;
    const double sum = whole(0);
    CHECK(sum == norm || (std::isnan(sum) && std::isnan(norm)), "tensors have {}, all of it {}",
          sum, norm);
  }

  /// Sets the entry "watch" of --report: bytes that this rank sent in the last watched step.
  void report(nlohmann::json& extra, int64_t predicted) const {
    if (every_ > 0) extra["watch"] = {{"predicted", sent_ ? predicted : 0}, {"measured", sent_}};
  }

  /// Whether the last step was watched.
  bool is_new() const { return is_new_; }
  int64_t tensors() const { return std::ssize(params_.specs()); }
  TensorFacts facts(int64_t i) const {
    const ParamSpec& spec = params_.specs()[static_cast<size_t>(i)];
    const auto zeros = static_cast<double>(count_at(i));
    return {
        .name = spec.name,
        .gradient = norm(3 * i),
        .weight = norm(3 * i + 1),
        .update = norm(3 * i + 2),
        .largest = double{std::bit_cast<float>(static_cast<uint32_t>(largest_.data<int64_t>()[i]))},
        .zeros = zeros / static_cast<double>(spec.live())};
  }
  /// The norm of section s, of all its gradients (`which` 0), weights (1) or updates (2).
  double section(int64_t s, int which) const {
    std::vector<int64_t> sum(kLimbs);
    for (int64_t i = 0; i < tensors(); ++i) {
      const ParamSpec& spec = params_.specs()[static_cast<size_t>(i)];
      const Range range = params_.section(s);
      if (spec.offset >= range.begin && spec.offset < range.end) add_limbs(sum, 3 * i + which);
    }
    return std::sqrt(limbs_value(sum.data()));
  }
  /// The norm of all tensors: for gradients, the bits of grad_norm().
  double whole(int which) const {
    std::vector<int64_t> sum(kLimbs);
    for (int64_t i = 0; i < tensors(); ++i) add_limbs(sum, 3 * i + which);
    return std::sqrt(limbs_value(sum.data()));
  }
  int64_t sections() const { return params_.sections(); }
  /// Root mean square of stream l.
  double rms(int64_t l) const {
    return norm(3 * tensors() + l) / std::sqrt(static_cast<double>(positions_));
  }
  /// The norm of each rank's own gradient, with the loss scale in it.
  std::vector<double> of_ranks() const {
    std::vector<double> all;
    for (int64_t r = 0; r < params_.shards(); ++r)
      all.push_back(norm(3 * tensors() + streams() + r));
    return all;
  }

  /// All of it, named for the files of events. Empty if the last step was not watched.
  std::vector<Scalar> scalars() const {
    std::vector<Scalar> all;
    if (!is_new_) return all;
    for (int64_t i = 0; i < tensors(); ++i) {
      const TensorFacts f = facts(i);
      for (const auto& [what, value] : {std::pair{"gradient", f.gradient},
                                        {"weight", f.weight},
                                        {"update", f.update},
                                        {"update_ratio", update_ratio(f.update, f.weight)},
                                        {"largest", f.largest},
                                        {"zeros", f.zeros}})
        all.push_back({fmt::format("{}/{}", what, f.name), value});
    }
    for (int64_t s = 0; s < sections(); ++s)
      all.push_back({fmt::format("section_gradient/{}", s), section(s, 0)});
    for (int64_t l = 0; l < streams(); ++l) all.push_back({fmt::format("rms/{}", l), rms(l)});
    return all;
  }

 private:
  /// Three norms a tensor, a norm for each stream and rank; and the zeros of each tensor.
  static int64_t rows(const ParamLayout& params) {
    return 3 * std::ssize(params.specs()) + params.config().layers + 1 + params.shards();
  }
  static int64_t numbers(const ParamLayout& params) {
    return kLimbs * rows(params) + std::ssize(params.specs());
  }
  static int64_t message(const ParamLayout& params) {
    return 8 * (numbers(params) + std::ssize(params.specs()));
  }
  int64_t streams() const { return params_.config().layers + 1; }

  Tensor limbs(int64_t row) const { return sums_.slice(kLimbs * row, kLimbs).view({1, kLimbs}); }
  double norm(int64_t row) const { return std::sqrt(limbs_value(limbs(row).data<int64_t>())); }
  void add_limbs(std::vector<int64_t>& sum, int64_t row) const {
    for (int64_t j = 0; j < kLimbs; ++j)
      sum[static_cast<size_t>(j)] += limbs(row).data<int64_t>()[j];
  }
  int64_t& count_at(int64_t i) const { return sums_.data<int64_t>()[kLimbs * rows(params_) + i]; }

  /// Calls use(i, part) for what this rank has of tensor i: F32 (1,n).
  template <class Use>
  void for_parts(const Flat& buffer, Use&& use) const {
    int64_t i = -1;
    std::string name;
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
  /// The host looks for the largest element and for zeros: a device copies its gradient to it.
  void count(const Ctx& ctx, int64_t i, Tensor part) const {
    const HostCopy copy = HostCopy::of(ctx, part);
    const auto* x = static_cast<const uint32_t*>(copy.tensor().host());
    uint32_t most = 0;
    int64_t zeros = 0;
    for (int64_t k = 0; k < part.size(); ++k) {
      const uint32_t size = x[k] & 0x7FFFFFFF;  // its bits are in the order of |x|, NaN last
      most = std::max(most, size);
      zeros += size == 0;
    }
    int64_t& largest = largest_.data<int64_t>()[i];
    largest = std::max<int64_t>(largest, most);
    count_at(i) += zeros;
  }

  ParamLayout params_, shard_;
  int64_t every_;
  bool on_ = false, is_new_ = false;
  int64_t positions_ = 0;  ///< elements of a stream, over all micro-batches
  int64_t sent_ = 0;
  Tensor old_, sums_, largest_, wide_;
};

}  // namespace ladder
