// --loads FILE: the loads of a run's experts, step by step, on the clock of expert_clock.h. FILE is
// the --report of a run of chapter 21 or 22.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chapters/23_planner/expert_clock.h"
#include "chapters/23_planner/placement.h"
#include "common/error.h"
#include "common/input_file.h"
#include "common/run/command_line.h"

namespace ladder::planner {

struct ReplayOptions {
  std::string loads = {};
  int64_t redundant = 0, nodes = 1, groups = 1;

  void add_to(CommandLine& line) {
    line.group("Loads of experts, in place of a plan");
    line.add("--loads", loads,
             "the --report of a run with experts: what its loads cost on --ep ranks, and what a "
             "placement by load would have saved");
    line.add("--redundant-experts", redundant, "copies beyond one of each expert");
    line.add("--expert-nodes", nodes, "nodes, with as many ranks each");
    line.add("--expert-groups", groups, "groups of experts that should share a node");
  }
  /// @throws UserError
  void check() const {
    if (loads.empty() && (redundant != 0 || nodes != 1 || groups != 1))
      throw UserError("--redundant-experts, --expert-nodes and --expert-groups are for --loads");
  }

  /// @throws UserError naming what is legal
  PlacementShape shape(int64_t experts, int64_t ranks) const {
    if (ranks < 1 || experts % ranks != 0)
      throw UserError("--loads wants --ep, which must divide {} experts, not {}", experts, ranks);
    // More would only be more copies of an expert on a rank that has it.
    const int64_t most = experts * (ranks - 1);
    if (redundant < 0 || redundant > most || redundant % ranks != 0)
      throw UserError(
          "--redundant-experts must be a multiple of {} ranks from 0 to {}, which is each expert "
          "on each rank, not {}",
          ranks, most, redundant);
    if (nodes < 1 || ranks % nodes != 0)
      throw UserError("--expert-nodes must divide {} ranks, not {}", ranks, nodes);
    if (groups < 1 || experts % groups != 0)
      throw UserError("--expert-groups must divide {} experts, not {}", experts, groups);
    return {experts, experts + redundant, ranks, nodes, groups};
  }
};

/// Of each step, from a report. @throws UserError
inline std::vector<BlockLoads> read_loads(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 28, kMostTokens = int64_t{1} << 40;
  std::vector<BlockLoads> steps;
  try {
    const auto report = nlohmann::json::parse(read_small_file(path, kMostBytes, "--loads"));
    report.at("/extra/experts/steps/load"_json_pointer).get_to(steps);
  } catch (const nlohmann::json::exception&) {
  }
  const auto is_legal = [&](const std::vector<int64_t>& load) {
    return load.size() == steps[0][0].size() && std::reduce(load.begin(), load.end()) > 0 &&
           std::ranges::all_of(load, [](int64_t n) { return n >= 0 && n <= kMostTokens; });
  };
  const auto are_legal = [&](const BlockLoads& step) {
    return !step.empty() && step.size() == steps[0].size() && std::ranges::all_of(step, is_legal);
  };
  if (steps.size() < 2 || !std::ranges::all_of(steps, are_legal))
    throw UserError(
        "--loads {}: no loads of experts; legal is the --report of a run of 21_moe or "
        "22_expert_parallel, of two steps or more",
        path);
  return steps;
}

/// A run's loads on `ranks` ranks. @throws UserError
inline ExpertClock replayed(const ReplayOptions& options, int64_t ranks) {
  const std::vector<BlockLoads> steps = read_loads(options.loads);
  ExpertClock clock(options.shape(std::ssize(steps[0][0]), ranks));
  for (const BlockLoads& loads : steps) clock.count(loads);
  return clock;
}

/// Means over the last steps.
inline std::string replay_text(const ExpertClock& clock) {
  const auto last = std::min<int64_t>(100, std::ssize(clock.aligned()));
  const auto mean = [&](const std::vector<double>& times) {
    return std::reduce(times.end() - last, times.end()) / static_cast<double>(last);
  };
  return fmt::format(
      "time of a layer, over that with even loads, mean of the last {} steps\n"
      "  experts in order  {:.2f}\n  placed by load    {:.2f}\n",
      last, mean(clock.aligned()), mean(clock.placed()));
}

inline nlohmann::json replay_json(const ExpertClock& clock) {
  return {{"experts", clock.experts()},
          {"steps", {{"aligned", clock.aligned()}, {"placed", clock.placed()}}}};
}

}  // namespace ladder::planner
