// All layouts that a world of devices has, and which of them is fastest.
//
// What is tried: tp of a node, pp and chunks that divide the layers, cp while a rank keeps 4,096
// tokens, dp for what is left; ZeRO 0 to 3; three policies of recomputation; micro-batches of 1 to
// 8; three schedules. A flag that is given fixes its axis. Bytes come first, as they are cheap: of
// a layout that does not fit no time is computed. The fastest are timed again, by chapter 12's
// clock.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chapters/23_planner/device.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/step_time.h"
#include "chapters/23_planner/usual_memory.h"
#include "common/error.h"

namespace ladder::planner {

/// What the user has fixed of a layout.
struct Fixed {
  std::optional<int64_t> tp = {}, pp = {}, dp = {}, cp = {}, ep = {};
  std::optional<int64_t> zero = {}, micro_batch = {}, chunks = {};
  std::optional<std::string> recompute = {};
  std::optional<PipelineKind> schedule = {};
};

/// A layout that fits, or would.
struct Plan {
  PlanLayout layout;
  StageBytes memory;
  StepTime step;

  int64_t bytes() const { return memory.bytes.total(); }
  double seconds() const { return step.seconds(); }
};

struct Found {
  std::vector<Plan> plans;    ///< that fit, the fastest first
  int64_t legal = 0;          ///< layouts
  std::optional<Plan> least;  ///< of fewest bytes, whether it fits or not; without times
  std::string why;            ///< that layouts are not legal
};

/// Calls use(layout) for every layout that the search tries, legal or not.
class Candidates {
 public:
  Candidates(const Job& job, const Device& device, const Fixed& fixed)
      : job_(job), node_(static_cast<int64_t>(device.node)), fixed_(fixed) {}

  template <class Use>
  void each(Use&& use) const {
    for (const int64_t tp : of(fixed_.tp, powers(1, std::min<int64_t>(8, node_))))
      for (const int64_t pp : of(fixed_.pp, divisors(job_.gpt.layers)))
        for (const int64_t cp : of(fixed_.cp, powers(1, job_.gpt.seq_len / kLeastTokens)))
          for (const auto& [schedule, chunks] : schedules(pp))
            with_cut({.tp = tp,
                      .pp = pp,
                      .dp = fixed_.dp.value_or(std::max<int64_t>(1, job_.gpus / (tp * pp * cp))),
                      .cp = cp,
                      .ep = 1,
                      .recompute = {},
                      .schedule = schedule,
                      .chunks = chunks},
                     use);
  }

 private:
  static constexpr int64_t kLeastTokens = 4096;  ///< of a context rank

  template <class Use>
  void with_cut(PlanLayout l, Use& use) const {
    const bool alone = l.replicas() == 1;
    for (const int64_t zero : of(fixed_.zero, alone      ? std::vector<int64_t>{0}
                                              : l.pp > 1 ? std::vector<int64_t>{0, 1}
                                                         : std::vector<int64_t>{0, 1, 2, 3}))
      for (const std::string& recompute :
           of(fixed_.recompute, std::vector<std::string>{"none", "selective", "full"}))
        for (const int64_t micro : of(fixed_.micro_batch, powers(1, 8)))
          for (const int64_t ep : of(fixed_.ep, experts(l))) {
            l.zero = static_cast<int>(zero);
            l.recompute = recompute;
            l.micro_batch = micro;
            l.ep = ep;
            use(l);
          }
  }

  template <class T>
  static std::vector<T> of(const std::optional<T>& fixed, std::vector<T> all) {
    return fixed ? std::vector<T>{*fixed} : all;
  }
  static std::vector<int64_t> powers(int64_t first, int64_t last) {
    std::vector<int64_t> all{first};
    while (2 * all.back() <= last) all.push_back(2 * all.back());
    return all;
  }
  /// Ranks that share experts; 1 of a model that has none.
  std::vector<int64_t> experts(const PlanLayout& l) const {
    return powers(1, std::min(job_.gpt.experts.count, l.replicas()));
  }
  static std::vector<int64_t> divisors(int64_t n) {
    std::vector<int64_t> all;
    for (int64_t d = 1; d <= n; ++d)
      if (n % d == 0) all.push_back(d);
    return all;
  }
  /// Schedules with their chunks. One stage needs none.
  std::vector<std::pair<PipelineKind, int64_t>> schedules(int64_t pp) const {
    if (pp == 1) return {{PipelineKind::OneFOneB, 1}};
    std::vector<std::pair<PipelineKind, int64_t>> all;
    for (const PipelineKind kind :
         of(fixed_.schedule,
            {PipelineKind::OneFOneB, PipelineKind::Interleaved, PipelineKind::ZbH1}))
      for (const int64_t chunks : kind == PipelineKind::Interleaved
                                      ? of(fixed_.chunks, std::vector<int64_t>{2, 4})
                                      : std::vector<int64_t>{1})
        all.emplace_back(kind, chunks);
    return all;
  }

  const Job& job_;
  int64_t node_;
  const Fixed& fixed_;
};

class Search {
 public:
  Search(const Job& job, const Device& device) : job_(job), device_(device) {}

  Found find(const Fixed& fixed) {
    Found found;
    Candidates(job_, device_, fixed).each([&](const PlanLayout& layout) {
      if (const std::string why = cut(layout); !why.empty()) {
        if (found.why.empty()) found.why = why;
        return;
      }
      // Where the model can be cut so, this says more than why it cannot be cut otherwise.
      if (const std::string why = why_not(job_, layout); !why.empty()) {
        found.why = why;
        return;
      }
      ++found.legal;
      Plan plan{layout, most_bytes(job_, layout, sizes_), {}};
      if (!found.least || plan.bytes() < found.least->bytes()) found.least = plan;
      if (plan.bytes() > device_.room()) return;
      plan.step = StepModel(job_, device_, plan.layout, sizes_).step();
      found.plans.push_back(std::move(plan));
    });
    sort(found.plans, found.plans.size());
    // The formula of the bubble takes all stages for the slowest; the clock knows better.
    const size_t again = std::min(kClocked, found.plans.size());
    for (size_t i = 0; i < again; ++i)
      if (const PlanLayout& l = found.plans[i].layout;
          l.pp * l.chunks * l.micros(job_) <= kMostActions)
        found.plans[i].step = StepModel(job_, device_, l, sizes_).clocked();
    sort(found.plans, again);
    return found;
  }

  SizeTable& sizes() { return sizes_; }

 private:
  static constexpr size_t kClocked = 32;
  static constexpr int64_t kMostActions = 1 << 17;  ///< of a clock: more take long

  static void sort(std::vector<Plan>& plans, size_t first) {
    std::stable_sort(plans.begin(), plans.begin() + static_cast<std::ptrdiff_t>(first),
                     [](const Plan& a, const Plan& b) {
                       return std::pair(a.seconds(), a.bytes()) < std::pair(b.seconds(), b.bytes());
                     });
  }

  /// Chapters say by exceptions whether a cut is legal; each cut is asked once.
  const std::string& cut(const PlanLayout& l) {
    const std::array<int64_t, 4> key{l.tp, l.pp, static_cast<int64_t>(l.schedule), l.chunks};
    const auto found = cuts_.find(key);
    if (found != cuts_.end()) return found->second;
    return cuts_[key] = why_not_cut(job_, l.tp, l.pp, l.schedule, l.chunks);
  }

  const Job& job_;
  const Device& device_;
  SizeTable sizes_;
  std::map<std::array<int64_t, 4>, std::string> cuts_;
};

/// Those of which no other is faster and smaller, the fastest first.
inline std::vector<const Plan*> pareto(const std::vector<Plan>& by_time) {
  std::vector<const Plan*> front;
  for (const Plan& plan : by_time)
    if (front.empty() || plan.bytes() < front.back()->bytes()) front.push_back(&plan);
  return front;
}

/// What another choice would take: "--recompute full", and its fastest layout.
struct Change {
  std::string text;
  Plan plan;
};

/// The cheapest change after which something fits: one fixed flag is set free, or there are more
/// devices. Of the former the fastest, of the latter the fewest. None: nothing of the kind does.
inline std::optional<Change> cheapest_change(const Job& job, const Device& device,
                                             const Fixed& fixed) {
  std::optional<Change> best;
  Search search(job, device);
  const auto try_without = [&](auto Fixed::*flag, const char* name, auto&& value) {
    if (!(fixed.*flag)) return;
    Fixed other = fixed;
    (other.*flag).reset();
    other.dp.reset();  // what is left for it
    const Found found = search.find(other);
    if (found.plans.empty()) return;
    const Plan& plan = found.plans.front();
    if (!best || plan.seconds() < best->plan.seconds())
      best = {fmt::format("--{} {}", name, value(plan.layout)), plan};
  };
  try_without(&Fixed::recompute, "recompute", [](const PlanLayout& l) { return l.recompute; });
  try_without(&Fixed::zero, "zero", [](const PlanLayout& l) { return l.zero; });
  try_without(&Fixed::micro_batch, "micro-batch",
              [](const PlanLayout& l) { return l.micro_batch; });
  try_without(&Fixed::schedule, "schedule",
              [](const PlanLayout& l) { return to_string(l.schedule); });
  try_without(&Fixed::tp, "tp", [](const PlanLayout& l) { return l.tp; });
  try_without(&Fixed::pp, "pp", [](const PlanLayout& l) { return l.pp; });
  try_without(&Fixed::cp, "cp", [](const PlanLayout& l) { return l.cp; });
  try_without(&Fixed::ep, "ep", [](const PlanLayout& l) { return l.ep; });
  if (best) return best;
  Fixed free = fixed;
  free.dp.reset();
  for (Job more = job; 2 * more.gpus <= (1 << 20);) {
    more.gpus *= 2;
    const Found found = Search(more, device).find(free);
    if (!found.plans.empty())
      return Change{fmt::format("--gpus {}", more.gpus), found.plans.front()};
  }
  return {};
}

}  // namespace ladder::planner
