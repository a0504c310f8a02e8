// What uneven loads of experts cost in time, on a modelled clock, and what a placement by load
// would save.
//
//   work   rows in the experts of a rank
//   wire   rows between a rank and others, in the direction that has more of them
//
//   time of a layer, forward = max over ranks of work x T_work + 2 max over ranks of wire x T_wire
//
// Rows go to the owners of experts, experts compute, and rows come back, one after the other; each
// waits for the busiest rank. Rows cross the wires twice: hence the 2. With even loads n tokens
// of a rank, each of which takes k experts, are k n rows in experts and k n (ep - 1) / ep rows on
// the wires.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "chapters/23_planner/placement.h"
#include "kernels/check.h"

namespace ladder::planner {

/// The time that a row takes, in any unit: in an expert, and from one rank to another.
struct RowTime {
  double work = 1, wire = 1;
};

/// Rows of the busiest rank: in its experts, and on its wires, in the direction that has more.
struct BusiestRank {
  double work = 0, wire = 0;

  /// Of a layer, forward. As much comes back as was sent.
  double time(const RowTime& row) const { return work * row.work + 2 * wire * row.wire; }
};

/// @param rows (ranks,E): how many rows the tokens of each rank are for each expert. Copies of an
///             expert have equal numbers of them
inline BusiestRank busiest_rank(std::span<const double> rows, const Placement& placement,
                                int64_t ranks) {
  const int64_t E = std::ssize(rows) / ranks,
                room = div_exact(int64_t{std::ssize(placement)}, ranks);
  const std::vector<int64_t> count = count_copies(placement, E);
  BusiestRank busiest;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    double work = 0, own = 0, all = 0;
    for (int64_t i = 0; i < room; ++i) {
      const int64_t e = placement[rank * room + i];
      const auto copies = static_cast<double>(count[e]);
      for (int64_t from = 0; from < ranks; ++from) work += rows[from * E + e] / copies;
      own += rows[rank * E + e] / copies;  // these travel on no wire
    }
    for (int64_t e = 0; e < E; ++e) all += rows[rank * E + e];
    busiest.work = std::max(busiest.work, work);
    // Before experts compute, work - own rows arrive and all - own rows leave.
    busiest.wire = std::max({busiest.wire, work - own, all - own});
  }
  return busiest;
}

/// The same for `rows` of all ranks if loads were even: no other loads are faster on these ranks.
inline BusiestRank even_rank(double rows, int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  return {.work = rows / n, .wire = rows / n * (n - 1) / n};
}

/// Tokens that chose each expert in a step, [block][expert].
using BlockLoads = std::vector<std::vector<int64_t>>;

/// Time of the layers of a run on the modelled clock, over what they would take with even loads.
class ExpertClock {
 public:
  ExpertClock(const PlacementShape& shape, const RowTime& row) : shape_(shape), row_(row) {}

  /// @param loads of a step, [block][expert]. They do not say which rank a token is from: each rank
  ///              is taken to have an equal part of an expert's tokens
  void count(const BlockLoads& loads) {
    double aligned = 0, placed = 0;
    const bool known = !past_.empty();
    past_.resize(loads.size(), std::vector<int64_t>(static_cast<size_t>(shape_.experts)));
    experts_.resize(loads.size());
    for (size_t l = 0; l < loads.size(); ++l) {
      // Loads of this step are not known before it: those of steps before it say where experts lie.
      experts_[l] = place_experts(past_[l], shape_);
      aligned += slowdown(loads[l], aligned_experts(shape_.experts));
      placed += slowdown(loads[l], experts_[l]);
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

  double slowdown(const std::vector<int64_t>& loads, const Placement& placement) const {
    std::vector<double> rows;
    double all = 0;
    for (int64_t rank = 0; rank < shape_.ranks; ++rank)
      for (const int64_t load : loads)
        all += rows.emplace_back(static_cast<double>(load) / static_cast<double>(shape_.ranks));
    return busiest_rank(rows, placement, shape_.ranks).time(row_) /
           even_rank(all, shape_.ranks).time(row_);
  }

  PlacementShape shape_;
  RowTime row_;
  BlockLoads past_;  ///< of the steps before
  std::vector<Placement> experts_;
  std::vector<double> aligned_, placed_;
};

}  // namespace ladder::planner
