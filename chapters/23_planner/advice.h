// What to change in a question that has no answer, because nothing is legal or nothing fits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/23_planner/candidates.h"
#include "chapters/23_planner/device.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/legal.h"
#include "chapters/23_planner/search.h"
#include "common/names.h"

namespace ladder::planner {

/// A value in the form that a command line has.
inline std::string text_of(PipelineKind kind) { return std::string(to_string(kind)); }
template <class T>
std::string text_of(const T& value) {
  return fmt::format("{}", value);
}

/// What another choice would give: "--recompute full", and the fastest layout with it.
struct Change {
  std::string text;
  Plan plan;
};

/// The cheapest change after which something fits: one fixed flag becomes free, or there are more
/// devices. Of the free flags it is the one with the fastest plan; of numbers of devices, the
/// smallest. None if no such change helps.
inline std::optional<Change> cheapest_change(const Job& job, const Device& device,
                                             const Fixed& fixed) {
  constexpr Wanted kOne{.fastest = 1, .front = false};
  std::optional<Change> best;
  Search search(job, device);
  each_flag([&](auto flag, const char* name, auto value) {
    if (!(fixed.*flag)) return;
    Fixed other = fixed;
    (other.*flag).reset();
    other.dp.reset();  // it takes the devices that are left
    const Found found = search.find(other, kOne);
    if (found.plans.empty()) return;
    const Plan& plan = found.plans.front();
    if (!best || plan.seconds() < best->plan.seconds())
      best = {fmt::format("{} {}", name, text_of(value(plan.layout))), plan};
  });
  if (best) return best;
  Fixed free = fixed;
  free.dp.reset();
  for (Job more = job; 2 * more.gpus <= (1 << 20);) {
    more.gpus *= 2;
    const Found found = Search(more, device).find(free, kOne);
    if (!found.plans.empty())
      return Change{fmt::format("--gpus {}", more.gpus), found.plans.front()};
  }
  return {};
}

/// Why no layout of a question is legal.
class Refusal {
 public:
  /// @param fixed leaves no layout legal
  Refusal(const Job& job, const Fixed& fixed) : job_(job), fixed_(fixed), few_(fixed) {
    each_flag([&](auto flag, const char*, auto) {
      Fixed fewer = few_;
      (fewer.*flag).reset();
      if (!Candidates(job_, fewer).any()) few_ = fewer;
    });
  }

  std::string text() const {
    std::vector<std::string> all = changes();
    if (all.empty()) all = other_jobs();
    return all.empty()
               ? reason()
               : fmt::format("{}; nearest that is legal: {}", reason(), fmt::join(all, ", or "));
  }

 private:
  /// What all layouts break, with the fewest flags that leave none legal. If layouts break
  /// different rules: what those say that break only one rule.
  std::string reason() const {
    for (const Rule rule : kRules)
      if (!Candidates(job_, few_, {rule}).any())
        return rule(job_, Candidates(job_, few_, {}).any().value());
    std::vector<std::string> all;
    for (const Rule rule : kRules) {
      if (rule == devices_are_all) continue;  // other layouts are always legal
      Candidates::Rules others{kRules.begin(), kRules.end()};
      std::erase(others, rule);
      if (const auto layout = Candidates(job_, few_, others).any())
        all.push_back(rule(job_, *layout));
    }
    return fmt::format("of {} devices for {} sequences, {}", job_.gpus, job_.batch,
                       fmt::join(all, "; or "));
  }

  /// For each of the flags that leave nothing legal: its nearest legal value.
  std::vector<std::string> changes() const {
    std::vector<std::string> all;
    each_flag([&](auto flag, const char* name, auto value) {
      if (!(few_.*flag)) return;
      Fixed free = fixed_;
      (free.*flag).reset();
      const auto given = *(few_.*flag);
      std::optional<std::remove_const_t<decltype(given)>> nearest;
      const Candidates candidates(job_, free);
      candidates.each([&](PlanLayout l) {
        for (const Sharding& sharding : candidates.shardings(l)) {
          sharding.of(l);
          if (!nearest || distance(value(l), given) < distance(*nearest, given)) nearest = value(l);
        }
      });
      if (nearest) all.push_back(fmt::format("{} {}", name, text_of(*nearest)));
    });
    return all;
  }
  template <class T>
  static double distance(const T& a, const T& b) {
    if constexpr (std::is_same_v<T, int64_t>)
      return static_cast<double>(std::max(a, b) + 1) / static_cast<double>(std::min(a, b) + 1);
    return a == b ? 0 : 1;
  }

  /// Other numbers of devices or of sequences.
  std::vector<std::string> other_jobs() const {
    std::vector<std::string> all;
    for (const auto& [name, number] :
         {std::pair{"--gpus", &Job::gpus}, std::pair{"--batch", &Job::batch}}) {
      constexpr int64_t kFar = 256;
      for (int64_t step = 1; step <= kFar; ++step) {
        Job less = job_, more = job_;
        less.*number -= step;
        more.*number += step;
        const Job* const legal = less.*number >= 1 && Candidates(less, fixed_).any() ? &less
                                 : Candidates(more, fixed_).any()                    ? &more
                                                                                     : nullptr;
        if (legal == nullptr) continue;
        all.push_back(fmt::format("{} {}", name, legal->*number));
        break;
      }
    }
    return all;
  }

  const Job& job_;
  const Fixed& fixed_;
  Fixed few_;  ///< the fewest flags of `fixed` that leave nothing legal
};

}  // namespace ladder::planner
