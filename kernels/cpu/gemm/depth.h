// How the sum over K of a product is cut: into leaves, as the rule of the same bits says, and into
// slabs, as the caches need. Lengths are counted in steps. A step is `step` values of k, which
// registers take at once: 1 of FP32, a pair of BF16, 32 with AMX.
#pragma once

#include <array>
#include <bit>
#include <span>
#include <utility>

#include "kernels/check.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vec.h"
#include "kernels/token_leaves.h"

namespace ladder {

/// The longest slab of K, in steps. With AVX2 and NEON, a panel of B (kDepth x kNr words, 24 KiB)
/// then stays in L1 while A's panels pass. Machines with AVX-512 have a larger L2, which feeds
/// both; fewer slabs then mean that fewer sums wait in memory.
constexpr int64_t kDepth = kLanes == 8 ? 384 : 768;
/// A K that is no longer than this is not cut. Then no sum waits in memory between slabs.
constexpr int64_t longest_uncut(int64_t most) { return most / 3 * 4; }

/// Neighboring values of k. Panels hold one run after the other. Each run begins with a new step;
/// its last step may not be full.
struct KRun {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

/// The part of a leaf that lies in one slab.
struct Stretch {
  int64_t steps;
  uint64_t joins;  ///< bit l: the sum on level l of the tree is joined; lowest first
  int level;       ///< where the sum goes: a level, or DepthCut::parking() if the leaf goes on
  bool resumes;    ///< the leaf began in an earlier slab, and its sum so far is parked
  bool last;       ///< nothing follows, so the sum goes to C
};

/// Values of k that are multiplied before the next ones are packed: stretches, one after the other.
struct Slab {
  int64_t steps = 0, values = 0;  ///< fewer values than steps hold, if some are not full
  int count = 0, run_count = 0;
  /// Only the first `count` are used. The others stay uninitialized: to write them would fill L1.
  std::array<Stretch, longest_uncut(kDepth)> stretches;
  /// The runs of all stretches. Neighbors are merged if the first ends with a full step.
  std::array<KRun, longest_uncut(kDepth)> runs;

  std::span<const KRun> k() const { return {runs.data(), static_cast<size_t>(run_count)}; }
};

/// How K is cut into slabs, and where the sums wait.
class DepthCut {
 public:
  /// @param step values of k in a step
  /// @param most longest slab in steps; but a K of at most longest_uncut(most) is one slab
  DepthCut(const Product& p, int64_t step, int64_t most)
      : K_(p.K),
        leaves_(p.present.empty() ? p.leaves : p.present.back().index + 1),
        token_leaves_(p.token_leaves),
        step_(step),
        present_(p.present) {
    const int64_t all = runs_of(leaves_).longest;
    if (all > most && all <= longest_uncut(most)) most = longest_uncut(most);
    while (run_ < leaves_ && runs_of(2 * run_).longest <= most) run_ *= 2;
    const auto [longest, count] = runs_of(run_);
    pieces_ = ceil_div(longest, most);
    depth_ = ceil_div(longest, pieces_);
    slabs_ = count * pieces_;
  }

  /// The most steps that a slab has.
  int64_t depth() const { return depth_; }
  int64_t slabs() const { return slabs_; }

  Slab slab(int64_t i) const {
    Slab slab;
    const int64_t run = i / pieces_, piece = i % pieces_;
    if (present_.empty()) {
      const int64_t first = run * run_;
      for (int64_t which = first; which < std::min(leaves_, first + run_); ++which)
        push(slab, leaf_runs(which), join_of(which), piece);
    } else {
      for_present([&](int64_t which, const Fold& k, const Join& join) {
        if (which == run) push(slab, k, join, piece);
      });
    }
    return slab;
  }

  /// How many levels have sums that never outlive a slab.
  int local_levels() const { return slabs() == 1 ? parking() : std::countr_zero(bits(run_)); }
  /// The level after those of the tree. It holds the sum of a leaf that goes on in the next slab.
  int parking() const { return std::bit_width(bits(leaves_ - 1)); }
  int levels() const { return parking() + (pieces_ > 1 ? 1 : 0); }

 private:
  /// Where in the tree the sum of a leaf goes: see Stretch.
  struct Join {
    uint64_t joins;
    int level;
    bool last;
  };

  static uint64_t bits(int64_t n) { return static_cast<uint64_t>(n); }
  static uint64_t below(int level) { return (uint64_t{1} << level) - 1; }
  int64_t steps(int64_t length) const { return ceil_div(length, step_); }
  int64_t steps(const Fold& k) const { return steps(k.early.size()) + steps(k.late.size()); }

  /// Aligned groups of `run` leaves: how many steps the longest group has, and how many groups
  /// there are.
  struct Runs {
    int64_t longest = 0, count = 0;
  };
  Runs runs_of(int64_t run) const {
    if (present_.empty()) {
      const int64_t halves = token_leaves_ > 0 ? 2 : 1;
      const int64_t each = halves * steps(ceil_div(K_, halves * leaves_));
      return {std::min(run, leaves_) * std::max<int64_t>(1, each), ceil_div(leaves_, run)};
    }
    Runs runs;
    int64_t sum = 0, before = -1;
    for (const SparseLeaf& leaf : present_) {
      if (std::exchange(before, leaf.index / run) != leaf.index / run) sum = 0, ++runs.count;
      sum += steps(leaf.k);
      runs.longest = std::max(runs.longest, sum);
    }
    return runs;
  }

  /// A binary counter: leaf `which` completes as many levels as its index has trailing ones. The
  /// last leaf is joined with all sums that are left: the ones of its index.
  Join join_of(int64_t which) const {
    const int level = std::countr_one(bits(which));
    const bool last = which + 1 == leaves_;
    return {.joins = last ? bits(which) : below(level), .level = level, .last = last};
  }
  /// Calls f(run, k, join) for the leaves that are present. `run` numbers their aligned groups. A
  /// leaf completes the levels below the subtree that it shares with the next leaf. The sums that
  /// wait on those levels are joined to it.
  template <class F>
  void for_present(const F& f) const {
    uint64_t waiting = 0;
    int64_t run = -1, before = -1;
    for (size_t i = 0; i < present_.size(); ++i) {
      const int64_t index = present_[i].index;
      const bool last = i + 1 == present_.size();
      const int level = last ? parking() : std::bit_width(bits(index ^ present_[i + 1].index)) - 1;
      const uint64_t joins = waiting & below(level);
      if (std::exchange(before, index / run_) != index / run_) ++run;
      f(run, present_[i].k, Join{.joins = joins, .level = level, .last = last});
      waiting = (waiting & ~joins) | uint64_t{1} << level;
    }
  }

  /// The values of k of a leaf: two runs. The second may be empty.
  Fold leaf_runs(int64_t which) const {
    if (token_leaves_ == 0) return {leaf(which, leaves_, K_), {}};
    const int64_t T = K_ / (leaves_ / token_leaves_), first = which / token_leaves_ * T;
    const Fold tokens = fold(which % token_leaves_, token_leaves_, T);
    return {{first + tokens.early.begin, first + tokens.early.end},
            {first + tokens.late.begin, first + tokens.late.end}};
  }

  /// Adds those of the steps `part` that the run has. Returns how many steps the run has in all.
  int64_t push_run(Slab& slab, Range run, Range part) const {
    const int64_t all = steps(run.size());
    const int64_t first = std::clamp<int64_t>(part.begin, 0, all);
    const int64_t last = std::clamp<int64_t>(part.end, 0, all);
    if (first == last) return all;
    const KRun own{run.begin + first * step_, std::min(run.end, run.begin + last * step_)};
    slab.values += own.size();
    KRun* before = slab.run_count > 0 ? &slab.runs[size_t(slab.run_count) - 1] : nullptr;
    if (before && before->end == own.begin && before->size() % step_ == 0)
      before->end = own.end;
    else
      slab.runs[size_t(slab.run_count++)] = own;
    return all;
  }

  /// Adds piece `piece` of a leaf.
  void push(Slab& slab, const Fold& k, const Join& join, int64_t piece) const {
    const Range part = leaf(piece, pieces_, steps(k));
    const int64_t earlier = push_run(slab, k.early, part);
    push_run(slab, k.late, {part.begin - earlier, part.end - earlier});
    const bool ends = piece + 1 == pieces_;
    slab.steps += part.size();
    const Join own = ends ? join : Join{.joins = 0, .level = parking(), .last = false};
    slab.stretches[size_t(slab.count++)] = {part.size(), own.joins, own.level, piece > 0, own.last};
  }

  int64_t K_, leaves_, token_leaves_, step_, depth_, slabs_;
  std::span<const SparseLeaf> present_;  ///< empty: all leaves_ are present
  int64_t run_ = 1;                      ///< whole leaves of a slab: a power of two
  int64_t pieces_ = 1;                   ///< pieces of a leaf that is longer than a slab
};

}  // namespace ladder
