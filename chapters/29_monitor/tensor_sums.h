// The sums over all ranks of a watched step, and the norms that follow from them. Watch (watch.h)
// fills them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "chapters/29_monitor/event_file.h"
#include "common/comm/chunks.h"
#include "common/model/layout.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/limbs.h"

namespace ladder {

/// |u| / |w|. Of a tensor of zeros it is 0 if the tensor does not move, and infinite if it does.
inline double update_ratio(double update, double weight) {
  return update == 0 ? 0 : update / weight;
}

/// Whose norm it is.
enum class Of : uint8_t { Gradient, Weight, Update };

/// What a watched step says of a tensor.
struct TensorFacts {
  std::string name;
  double gradient, weight, update;  ///< norms
  double largest;                   ///< the largest magnitude in the gradient
  double zeros;                     ///< the share of the gradient's elements that are 0
};

/// Squared norms as limbs: three for each tensor, then one for each of the L + 1 points where the
/// residual stream is measured, then one for each rank. After them comes, for each tensor, how many
/// elements of its gradient are 0. Another tensor holds the bits of the largest magnitudes, because
/// ranks take their maximum, not their sum.
class TensorSums {
 public:
  explicit TensorSums(const ParamLayout& params) : params_(params) {}
  void allocate(Arena& arena) {
    sums_ = arena.shared(Mem::Workspace, "watch.sums", Dtype::I64, {numbers(params_)});
    largest_ = arena.shared(Mem::Workspace, "watch.largest", Dtype::I64, {tensors()});
  }
  static int64_t bytes(const ParamLayout& params) {
    return 8 * (numbers(params) + std::ssize(params.specs()));
  }
  /// Bytes that rank r of N sends when ranks add their sums: two all-reduces.
  static int64_t traffic(const ParamLayout& params, int64_t r) {
    const int64_t N = params.shards();
    int64_t sent = 0;
    for (const int64_t n : {numbers(params), std::ssize(params.specs())}) {
      const int64_t chunk = Chunks{n, N}[r].size();
      sent += 8 * (n - chunk + (N - 1) * chunk);
    }
    return sent;
  }

  /// Carries in each sum, so that the limbs of ranks can be added (kernels/limbs.h).
  void carry() const {
    for (int64_t r = 0; r < rows(params_); ++r) carry_limbs(limbs(r).data<int64_t>());
  }

  // Where Watch adds.
  Tensor sums() const { return sums_; }
  Tensor largest() const { return largest_; }
  Tensor limbs_of(int64_t tensor, Of what) const { return limbs(row(tensor, what)); }
  Tensor limbs_of_stream(int64_t l) const { return limbs(3 * tensors() + l); }
  Tensor limbs_of_rank(int64_t r) const { return limbs(3 * tensors() + stream_points() + r); }
  int64_t& zeros(int64_t tensor) const {
    return sums_.data<int64_t>()[kLimbs * rows(params_) + tensor];
  }
  int64_t elements = 0;  ///< of the residual stream, over all micro-batches and ranks

  int64_t tensors() const { return std::ssize(params_.specs()); }
  int64_t stream_points() const { return params_.config().layers + 1; }
  int64_t sections() const { return params_.sections(); }

  TensorFacts facts(int64_t i) const {
    const ParamSpec& spec = params_.specs()[static_cast<size_t>(i)];
    const auto bits = static_cast<uint32_t>(largest_.data<int64_t>()[i]);
    return {.name = spec.name,
            .gradient = norm(limbs_of(i, Of::Gradient)),
            .weight = norm(limbs_of(i, Of::Weight)),
            .update = norm(limbs_of(i, Of::Update)),
            .largest = double{std::bit_cast<float>(bits)},
            .zeros = static_cast<double>(zeros(i)) / static_cast<double>(spec.live())};
  }
  /// The norm of all tensors of section s.
  double section(int64_t s, Of what) const { return norm_within(params_.section(s), what); }
  /// The norm of all tensors: for gradients, the bits of grad_norm().
  double whole(Of what) const { return norm_within({0, params_.size()}, what); }
  /// Root mean square of the residual stream at point l: before block l, or after the last.
  double rms(int64_t l) const {
    return norm(limbs_of_stream(l)) / std::sqrt(static_cast<double>(elements));
  }
  /// The norm of rank r's own gradient, which the loss scale multiplies.
  double of_rank(int64_t r) const { return norm(limbs_of_rank(r)); }
  int64_t ranks() const { return params_.shards(); }

  /// All numbers that no layout changes, by their names in event files.
  std::vector<Scalar> scalars() const {
    std::vector<Scalar> all;
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
      all.push_back({fmt::format("section_gradient/{}", s), section(s, Of::Gradient)});
    for (int64_t l = 0; l < stream_points(); ++l) all.push_back({fmt::format("rms/{}", l), rms(l)});
    return all;
  }

 private:
  static int64_t row(int64_t tensor, Of what) { return 3 * tensor + static_cast<int64_t>(what); }
  static int64_t rows(const ParamLayout& params) {
    return 3 * std::ssize(params.specs()) + params.config().layers + 1 + params.shards();
  }
  static int64_t numbers(const ParamLayout& params) {
    return kLimbs * rows(params) + std::ssize(params.specs());
  }
  Tensor limbs(int64_t row) const { return sums_.slice(kLimbs * row, kLimbs).view({1, kLimbs}); }
  static double norm(Tensor limbs) { return std::sqrt(limbs_value(limbs.data<int64_t>())); }

  /// The norm of all tensors that begin within these elements of the flat buffer.
  double norm_within(Range elements_of, Of what) const {
    std::vector<int64_t> sum(kLimbs);
    for (int64_t i = 0; i < tensors(); ++i) {
      const int64_t offset = params_.specs()[static_cast<size_t>(i)].offset;
      if (offset < elements_of.begin || offset >= elements_of.end) continue;
      const int64_t* const own = limbs_of(i, what).data<int64_t>();
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += own[j];
    }
    return std::sqrt(limbs_value(sum.data()));
  }

  ParamLayout params_;
  Tensor sums_, largest_;
};

}  // namespace ladder
