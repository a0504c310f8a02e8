// What uneven loads of experts cost in time, and what a placement by load would save.
//
// A layer waits for its busiest rank. So its time, over that with even loads, is
//
//   max over ranks of the rows in a rank's experts / their mean
//
// Messages do not change this ratio. Loads do not say which rank a token is from, so each of n
// ranks is taken to have an equal part of an expert's tokens. Then of w rows in its experts a rank
// gets w (n - 1) / n from others, and no rank sends more than the busiest gets. So messages take
// longer by the same factor as experts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "chapters/23_planner/placement.h"
#include "kernels/check.h"

namespace ladder::planner {

/// Rows in the experts of the busiest of `ranks`, over the mean. Copies of an expert have equal
/// numbers of its rows.
inline double slowdown(std::span<const int64_t> loads, const Placement& placement, int64_t ranks) {
  const std::vector<int64_t> copies = count_copies(placement, std::ssize(loads));
  const int64_t room = div_exact(int64_t{std::ssize(placement)}, ranks);
  std::vector<double> work(static_cast<size_t>(ranks));
  for (int64_t i = 0; i < std::ssize(placement); ++i)
    work[i / room] +=
        static_cast<double>(loads[placement[i]]) / static_cast<double>(copies[placement[i]]);
  const auto all = std::reduce(loads.begin(), loads.end());
  return std::ranges::max(work) * static_cast<double>(ranks) / static_cast<double>(all);
}

/// Tokens that chose each expert in a step, [block][expert].
using BlockLoads = std::vector<std::vector<int64_t>>;

/// Times of the layers of a run, over what they would take with even loads.
class ExpertClock {
 public:
  explicit ExpertClock(const PlacementShape& shape) : shape_(shape) {}

  /// The loads of a step.
  void count(const BlockLoads& loads) {
    double aligned = 0, placed = 0;
    const bool known = !past_.empty();
    past_.resize(loads.size(), std::vector<int64_t>(static_cast<size_t>(shape_.experts)));
    experts_.resize(loads.size());
    for (size_t l = 0; l < loads.size(); ++l) {
      // Loads of this step are not known before it: those of steps before it say where experts lie.
      experts_[l] = place_experts(past_[l], shape_);
      aligned += slowdown(loads[l], aligned_experts(shape_.experts), shape_.ranks);
      placed += slowdown(loads[l], experts_[l], shape_.ranks);
      for (size_t e = 0; e < loads[l].size(); ++e)
        past_[l][e] += loads[l][e] - past_[l][e] / kRemembered;
    }
    if (!known) return;
    const auto blocks = static_cast<double>(loads.size());
    aligned_.push_back(aligned / blocks);
    placed_.push_back(placed / blocks);
  }

  /// Means over blocks, from the second step on: with experts in order, and placed by load.
  const std::vector<double>& aligned() const { return aligned_; }
  const std::vector<double>& placed() const { return placed_; }
  /// Of each block, in the last step.
  const std::vector<Placement>& experts() const { return experts_; }

 private:
  // Each step forgets an eighth of past loads, so about the last 8 steps count.
  static constexpr int64_t kRemembered = 8;

  PlacementShape shape_;
  BlockLoads past_;  ///< of the steps before
  std::vector<Placement> experts_;
  std::vector<double> aligned_, placed_;
};

}  // namespace ladder::planner
