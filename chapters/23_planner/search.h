// Which of the legal layouts is fastest.
//
// There may be a million of them, so bytes and bounds come first. A family is the layouts that
// differ in sharding and recomputation alone (candidates.h). A bound is a time that a layout cannot
// go below: that of its family without recomputation, and of a pipeline the least that chapter 12's
// clock can show. Families are looked at in the order of their bounds. A layout is not timed if
//
//   too large   it does not fit
//   beaten      another with the same sharding in its family is no slower and no larger
//   too slow    its bound is above the times of the fastest that are wanted, and one found so far
//               takes no more time than the bound, and no more bytes
//
// All others are timed, pipelines by the clock if they have few enough actions. So the answer is
// the same as if all were timed. Tests compare it with a plain enumeration.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "chapters/23_planner/candidates.h"
#include "chapters/23_planner/device.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/step_time.h"
#include "chapters/23_planner/usual_memory.h"

namespace ladder::planner {

/// A layout that fits, or would fit.
struct Plan {
  PlanLayout layout;
  StageBytes memory;
  StepTime step;

  int64_t bytes() const { return memory.bytes.total(); }
  double seconds() const { return step.seconds(); }
  std::pair<double, int64_t> order() const { return {seconds(), bytes()}; }
};

struct Found {
  std::vector<Plan> plans;    ///< those that fit: the fastest, and the front; the fastest first
  int64_t legal = 0;          ///< all legal layouts: `plans`, and those of the next three
  int64_t too_large = 0;      ///< for the device
  int64_t beaten = 0;         ///< by another of the family, in time and in bytes
  int64_t too_slow = 0;       ///< to be in `plans`
  std::optional<Plan> least;  ///< if nothing fits: the plan of fewest bytes, without times
};

/// What a search must find.
struct Wanted {
  size_t fastest = 10;
  bool front = true;  ///< all plans of which no other is both faster and smaller
};

/// Whether a step has few enough actions for the clock.
inline bool has_clock(const Job& job, const PlanLayout& l) {
  constexpr int64_t kMostActions = 1 << 17;
  return l.pp * l.chunks * l.micros(job) <= kMostActions;
}
/// The time of a step, by the clock or by the formula.
inline StepTime timed(const Job& job, const Device& device, const PlanLayout& l, SizeTable& sizes) {
  const StepModel model(job, device, l, sizes);
  return has_clock(job, l) ? model.clocked() : model.step();
}

/// The plans found so far. Tells whether another plan can be one of those wanted.
class Ranking {
 public:
  explicit Ranking(const Wanted& wanted) : wanted_(wanted) {}

  /// Whether a layout with at least this time and these bytes could be wanted.
  bool takes(double seconds, int64_t bytes) const {
    if (plans_.size() < wanted_.fastest || seconds <= plans_[wanted_.fastest - 1].seconds())
      return true;
    return wanted_.front && std::ranges::none_of(plans_, [&](const Plan& plan) {
             return plan.seconds() <= seconds && plan.bytes() <= bytes;
           });
  }
  void add(Plan plan) {
    plans_.insert(std::ranges::upper_bound(plans_, plan.order(), {}, &Plan::order),
                  std::move(plan));
    int64_t least = std::numeric_limits<int64_t>::max();
    size_t place = 0;
    std::erase_if(plans_, [&](const Plan& p) {
      const bool on_front = p.bytes() < least;
      least = std::min(least, p.bytes());
      return place++ >= wanted_.fastest && !(wanted_.front && on_front);
    });
  }
  std::vector<Plan> take() { return std::move(plans_); }
  bool empty() const { return plans_.empty(); }

 private:
  Wanted wanted_;
  std::vector<Plan> plans_;  ///< the fastest first
};

class Search {
 public:
  Search(const Job& job, const Device& device) : job_(job), device_(device) {}

  Found find(const Fixed& fixed, const Wanted& wanted = {}) {
    const Candidates candidates(job_, fixed);
    std::vector<Family> families;
    candidates.each([&](const PlanLayout& l) { families.push_back(family(candidates, l)); });
    std::ranges::stable_sort(families, {}, &Family::seconds);
    Found found;
    Ranking best(wanted);
    for (const auto& [l, seconds, bytes] : families) {
      const auto members = std::ssize(candidates.shardings(l)) * std::ssize(candidates.policies(l));
      found.legal += members;
      // If nothing fits, the smallest layout is told: a family that may hold it is looked at, too.
      const bool told = !best.empty() || (found.least && found.least->bytes() <= bytes);
      if (told && bytes > device_.room())
        found.too_large += members;
      else if (best.takes(seconds, bytes))
        look_at(candidates, l, best, found);
    }
    found.plans = best.take();
    found.too_slow = found.legal - found.too_large - found.beaten - std::ssize(found.plans);
    return found;
  }

 private:
  /// A member of a family that fits: a number that grows with its time, its bytes, the place of its
  /// policy.
  using Member = std::tuple<double, int64_t, size_t>;

  struct Family {
    PlanLayout layout;
    /// No member takes less. Recomputation makes backward longer, and so hides more of the
    /// messages, but never more than the time that it adds.
    double seconds;
    int64_t bytes;  ///< no member has fewer: those of its states
  };

  Family family(const Candidates& candidates, PlanLayout l) {
    Family least{l, std::numeric_limits<double>::max(), std::numeric_limits<int64_t>::max()};
    for (const Sharding& sharding : candidates.shardings(l)) {
      sharding.of(l);
      least.seconds = std::min(least.seconds, bound(l));
      least.bytes = std::min(least.bytes, state_bytes(job_, l, sizes_.of(job_, l, 0)).total());
    }
    return least;
  }
  /// A bound, with room for rounding.
  double bound(const PlanLayout& l) {
    const StepModel model(job_, device_, l, sizes_);
    return (1 - 1e-9) * (has_clock(job_, l) ? model.least() : model.step()).seconds();
  }

  void look_at(const Candidates& candidates, PlanLayout l, Ranking& best, Found& found) {
    const std::vector<std::string>& policies = candidates.policies(l);
    const std::vector<int64_t> stages = stages_at_the_ends(l.pp);
    std::vector<double> again;
    std::vector<int64_t> work;  // [policy][stage]
    for (const std::string& policy : policies) {
      l.recompute = policy;
      again.push_back(StageModel(job_, device_, l).again());
      for (const int64_t stage : stages) work.push_back(work_bytes(job_, l, stage).total());
    }
    for (const Sharding& sharding : candidates.shardings(l)) {
      sharding.of(l);
      std::vector<int64_t> states;
      for (const int64_t stage : stages)
        states.push_back(state_bytes(job_, l, sizes_.of(job_, l, stage)).total());
      std::vector<Member> members;
      for (size_t i = 0; i < policies.size(); ++i) {
        int64_t bytes = 0;
        for (size_t s = 0; s < stages.size(); ++s)
          bytes = std::max(bytes, work[i * stages.size() + s] + states[s]);
        l.recompute = policies[i];
        if (bytes <= device_.room()) {
          // Stage 3 gathers some sections again. Else what is computed again makes the difference.
          members.emplace_back(l.zero == 3 ? bound(l) : again[i], bytes, i);
          continue;
        }
        ++found.too_large;
        if (best.empty() && (!found.least || bytes < found.least->bytes()))
          found.least = Plan{l, most_bytes(job_, l, sizes_), {}};
      }
      time(l, policies, std::move(members), best, found);
    }
  }

  /// Times those members that can be wanted. They differ only in recomputation.
  void time(PlanLayout l, const std::vector<std::string>& policies, std::vector<Member> members,
            Ranking& best, Found& found) {
    std::ranges::sort(members);
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const auto& [time, bytes, policy] : members) {
      l.recompute = policies[policy];
      if (bytes >= least)
        ++found.beaten;
      else if (best.takes(bound(l), bytes))
        best.add({l, most_bytes(job_, l, sizes_), timed(job_, device_, l, sizes_)});
      least = std::min(least, bytes);
    }
  }

  const Job& job_;
  const Device& device_;
  SizeTable sizes_;
};

/// The plans of which no other is both faster and smaller; the fastest first.
inline std::vector<const Plan*> pareto(const std::vector<Plan>& by_time) {
  std::vector<const Plan*> front;
  for (const Plan& plan : by_time)
    if (front.empty() || plan.bytes() < front.back()->bytes()) front.push_back(&plan);
  return front;
}

}  // namespace ladder::planner
