// All legal layouts of a question. What the user does not fix takes each legal value.
//
//   tp         1, 2, 4, 8                        pp          divisors of the layers
//   cp         divisors of the devices left      dp          what is left
//   ep         divisors of the experts           micro-batch powers of two, or all sequences of a
//   chunks     divisors of a stage's layers                  replica
//   schedule   chapter 12's four                 zero        0 to 3, and with 3 the divisors of
//                                                            dp as replicas of chapter 30
//   recompute  chapter 06's policies, each under one name
//
// Two layouts that are one come once: one stage has no schedule, one rank of the batch no stage of
// ZeRO.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/legal.h"

namespace ladder::planner {

/// The parts of a layout that the user has fixed.
struct Fixed {
  std::optional<int64_t> tp = {}, pp = {}, dp = {}, cp = {}, ep = {};
  std::optional<int64_t> zero = {}, replicas = {}, micro_batch = {}, chunks = {};
  std::optional<std::string> recompute = {};
  std::optional<PipelineKind> schedule = {};
};

/// How ranks of the batch share what belongs to parameters.
struct Sharding {
  int zero;
  int64_t replicas;

  void of(PlanLayout& l) const {
    l.zero = zero;
    l.replicas = replicas;
  }
};

/// The layouts that break none of some rules. Each stands for all its shardings and all policies of
/// recomputation.
class Candidates {
 public:
  using Rules = std::vector<Rule>;
  Candidates(const Job& job, const Fixed& fixed, Rules rules = {kRules.begin(), kRules.end()})
      : job_(job), fixed_(fixed), rules_(std::move(rules)) {}

  /// Calls use(layout) for each, with the first of its shardings and of its policies.
  template <class Use>
  void each(Use&& use) const {
    for (const int64_t tp : of(fixed_.tp, {1, 2, 4, 8})) {
      PlanLayout l{.tp = tp, .recompute = fixed_.recompute.value_or("none")};
      if (breaks(tensors_are_cut, l)) continue;
      for (const int64_t pp : of(fixed_.pp, divisors(job_.gpt.layers)))
        for (const auto& [schedule, chunks] : schedules(pp)) {
          l.pp = pp;
          l.schedule = schedule;
          l.chunks = chunks;
          if (!breaks(layers_are_cut, l)) with_cut(l, use);
        }
    }
  }
  /// The first layout, if there is one.
  std::optional<PlanLayout> any() const {
    std::optional<PlanLayout> first;
    each([&](const PlanLayout& l) {
      if (!first) first = l;
    });
    return first;
  }

  /// Of a layout of each().
  std::vector<Sharding> shardings(const PlanLayout& l) const {
    std::vector<Sharding> all;
    for (const int64_t zero : of(fixed_.zero, l.batch_ranks() == 1 ? std::vector<int64_t>{0}
                                              : l.pp > 1           ? std::vector<int64_t>{0, 1}
                                                         : std::vector<int64_t>{0, 1, 2, 3}))
      for (const int64_t replicas : of(fixed_.replicas, replicas_of(l, zero)))
        all.push_back({static_cast<int>(zero), replicas});
    return all;
  }
  const std::vector<std::string>& policies(const PlanLayout& l) const {
    const int64_t layers = job_.gpt.layers / (l.pp * l.chunks);
    std::vector<std::string>& all = policies_[{layers, l.pp > 1}];
    if (all.empty())
      all = of(fixed_.recompute, Recompute("none", layers, /*at_once=*/l.pp == 1).all());
    return all;
  }

 private:
  template <class Use>
  void with_cut(PlanLayout l, Use& use) const {
    const int64_t left = std::max<int64_t>(1, job_.gpus / (l.tp * l.pp));
    if (left * l.tp * l.pp != job_.gpus && has(devices_are_all)) return;
    for (const int64_t cp : of(fixed_.cp, divisors(left))) {
      l.cp = cp;
      l.dp = fixed_.dp.value_or(std::max<int64_t>(1, left / cp));
      for (const int64_t ep : of(fixed_.ep, divisors(std::max<int64_t>(1, job_.gpt.experts.count))))
        for (const int64_t micro : of(fixed_.micro_batch, micro_batches(job_.batch / l.dp))) {
          l.ep = ep;
          l.micro_batch = micro;
          l.replicas = 1;
          shardings(l).front().of(l);
          if (breaks_none(l)) use(std::as_const(l));
        }
    }
  }
  /// Legal numbers of replicas of a layout, whose own does not matter.
  std::vector<int64_t> replicas_of(PlanLayout l, int64_t zero) const {
    l.zero = static_cast<int>(zero);
    std::vector<int64_t> all;
    for (const int64_t replicas : zero == 3 ? divisors(l.dp) : std::vector<int64_t>{1}) {
      l.replicas = replicas;
      if (!breaks(groups_are_alike, l)) all.push_back(replicas);
    }
    return all;
  }
  bool has(Rule rule) const { return std::ranges::find(rules_, rule) != rules_.end(); }
  bool breaks(Rule rule, const PlanLayout& l) const { return has(rule) && !rule(job_, l).empty(); }
  /// Whether the layout breaks none of the rules that each() has not asked.
  bool breaks_none(const PlanLayout& l) const {
    return std::ranges::all_of(rules_, [&](Rule rule) {
      return rule == tensors_are_cut || rule == layers_are_cut || rule(job_, l).empty();
    });
  }

  template <class T>
  static std::vector<T> of(const std::optional<T>& fixed, std::vector<T> all) {
    return fixed ? std::vector<T>{*fixed} : all;
  }
  static std::vector<int64_t> divisors(int64_t n) {
    std::vector<int64_t> all;
    for (int64_t d = 1; d * d <= n; ++d)
      if (n % d == 0) {
        all.push_back(d);
        if (d * d < n) all.push_back(n / d);
      }
    std::ranges::sort(all);
    return all;
  }
  static std::vector<int64_t> micro_batches(int64_t share) {
    std::vector<int64_t> all;
    for (int64_t n = 1; n <= share; n *= 2) all.push_back(n);
    if (all.empty() || all.back() < share) all.push_back(std::max<int64_t>(1, share));
    return all;
  }
  /// Schedules and their chunks. One stage has only one.
  std::vector<std::pair<PipelineKind, int64_t>> schedules(int64_t pp) const {
    if (pp == 1) return {{PipelineKind::OneFOneB, 1}};
    std::vector<std::pair<PipelineKind, int64_t>> all;
    for (const PipelineKind kind :
         of(fixed_.schedule, {PipelineKind::OneFOneB, PipelineKind::Interleaved, PipelineKind::ZbH1,
                              PipelineKind::GPipe}))
      for (const int64_t chunks :
           kind == PipelineKind::Interleaved
               ? of(fixed_.chunks, divisors(std::max<int64_t>(1, job_.gpt.layers / pp)))
               : std::vector<int64_t>{1})
        all.emplace_back(kind, chunks);
    return all;
  }

  const Job& job_;
  const Fixed& fixed_;
  Rules rules_;
  mutable std::map<std::pair<int64_t, bool>, std::vector<std::string>> policies_;
};

/// Why no layout is legal: what all of them break. If they break different rules: what those say
/// that break only one.
inline std::string why_none(const Job& job, const Fixed& fixed) {
  for (const Rule rule : kRules)
    if (!Candidates(job, fixed, {rule}).any())
      return rule(job, Candidates(job, fixed, {}).any().value());
  std::vector<std::string> all;
  for (const Rule rule : kRules) {
    if (rule == devices_are_all) continue;  // other layouts are always legal
    Candidates::Rules others{kRules.begin(), kRules.end()};
    std::erase(others, rule);
    if (const auto layout = Candidates(job, fixed, others).any()) all.push_back(rule(job, *layout));
  }
  return fmt::format("of {} devices for {} sequences, {}", job.gpus, job.batch,
                     fmt::join(all, "; or "));
}

}  // namespace ladder::planner
