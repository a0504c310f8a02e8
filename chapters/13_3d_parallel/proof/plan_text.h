// The plan of a mesh for people and for programs: on the screen, and in --report.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chapters/12_pipeline_parallel/proof/pipeline_clock.h"
#include "chapters/12_pipeline_parallel/stage_layout.h"
#include "chapters/13_3d_parallel/proof/plan.h"
#include "common/comm/comm.h"
#include "common/comm/mesh.h"
#include "common/comm/run_ranks.h"
#include "common/run/log.h"
#include "common/run/options.h"
#include "common/run/report.h"
#include "kernels/arena.h"
#include "kernels/cost.h"

namespace ladder {

/// 0 .. n-1. If n is large: the first ones, -1 in place of those in between, and the last.
inline std::vector<int> some_of(int n) {
  constexpr int kMost = 8;
  std::vector<int> some;
  for (int i = 0; i < n; ++i)
    if (n <= kMost || i < kMost - 2 || i == n - 1) some.push_back(i);
  if (n > kMost) some.insert(some.end() - 1, -1);
  return some;
}

/// Which rank is where: a row for each share of the batch, and a column for each stage. Each place
/// shows the ranks that split its layers.
inline std::string grid_text(const MeshShape& mesh) {
  const int tp = mesh[Axis::Tensor];
  const auto place = [&](int d, int s) {
    if (d < 0 || s < 0) return std::string("...");
    const int first = mesh.rank({{Axis::Data, d}, {Axis::Pipeline, s}});
    return tp == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + tp - 1);
  };
  const auto number = [](std::string_view name, int i) {
    return i < 0 ? "..." : fmt::format("{} {}", name, i);
  };
  std::string text = fmt::format("\n  {:<16}", "ranks");
  for (const int s : some_of(mesh[Axis::Pipeline]))
    text += fmt::format(" {:>11}", number("stage", s));
  for (const int d : some_of(mesh[Axis::Data])) {
    text += fmt::format("\n  {:<16}", number("share", d));
    for (const int s : some_of(mesh[Axis::Pipeline])) text += fmt::format(" {:>11}", place(d, s));
  }
  return text;
}

/// "1.50 GiB", "0.25 MiB"
inline std::string bytes_text(int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? fmt::format("{:.2f} MiB", mib) : fmt::format("{:.2f} GiB", mib / 1024);
}

using Cells = std::vector<std::string>;

/// A row for each stage, or for neighboring stages whose rows look the same.
inline std::string stage_table(std::string_view title, const Cells& columns,
                               const std::vector<Cells>& stages) {
  std::string text;
  const auto row = [&](std::string_view name, const Cells& cells) {
    text += fmt::format("\n  {:<16}", name);
    for (const std::string& cell : cells) text += fmt::format(" {:>11}", cell);
  };
  row(title, columns);
  for (size_t s = 0, end = 0; s < stages.size(); s = end) {
    for (end = s + 1; end < stages.size() && stages[end] == stages[s];) ++end;
    row(end == s + 1 ? fmt::format("stage {}", s) : fmt::format("stages {} to {}", s, end - 1),
        stages[s]);
  }
  return text;
}

/// The memory of one rank of each stage, by category. Categories that no stage has are left out.
inline std::string memory_table(const std::vector<RankPlan>& stages) {
  Cells columns;
  std::vector<Cells> rows(stages.size());
  for (size_t i = 0; i < kMemCount; ++i) {
    const auto has = [&](const RankPlan& plan) { return plan.run.predicted.bytes[i] > 0; };
    if (std::none_of(stages.begin(), stages.end(), has)) continue;
    columns.emplace_back(kMemNames[i]);
    for (size_t s = 0; s < stages.size(); ++s)
      rows[s].push_back(bytes_text(stages[s].run.predicted.bytes[i]));
  }
  columns.emplace_back("in all");
  for (size_t s = 0; s < stages.size(); ++s)
    rows[s].push_back(bytes_text(stages[s].run.predicted.total()));
  return stage_table("memory", columns, rows);
}

inline std::string traffic_table(const MeshPlan& plan) {
  const std::vector<RankPlan>& stages = plan.stages();
  std::vector<Cells> rows(stages.size());
  for (size_t s = 0; s < stages.size(); ++s)
    for (const Axis axis : plan.axes()) {
      const std::optional<int64_t> bytes = stages[s].sent[axis];
      rows[s].push_back(bytes ? bytes_text(*bytes) : "uneven");
    }
  std::vector<std::string> columns;
  for (const Axis axis : plan.axes()) columns.emplace_back(to_string(axis));
  return stage_table("sent in a step", columns, rows);
}

inline std::string mesh_text(const MeshPlan& plan) {
  const MeshShape& mesh = plan.mesh();
  const StageLayout& first = plan.stages()[0].stage;
  const int64_t chunks = first.position.chunks, layers = first.model_chunk.layers;
  std::vector<std::string> axes;
  for (const Axis axis : plan.axes())
    axes.push_back(fmt::format("{} {}", to_string(axis), mesh[axis]));
  std::string text =
      fmt::format("mesh    {} = {} ranks; {} parameters; {} layers, {} on each stage{}",
                  fmt::join(axes, " x "), mesh.size(), parameters(first.gpt), first.gpt.layers,
                  chunks * layers, chunks == 1 ? "" : fmt::format(" in {} model chunks", chunks));
  text += plan.groups().empty() ? grid_text(mesh) : plan.groups();
  text += "\n  of one rank of a stage:";
  return text + memory_table(plan.stages()) + traffic_table(plan);
}

/// How long a micro-batch takes on one stage, in any unit: T_F, T_I and T_W of the README.
struct StageTimes {
  double forward, input, weight;
};

/// A plan has no measured times. So this counts operations of the products of the stage's blocks,
/// for one sequence. Scores and weighted sums of attention have no weights, so weight gradients
/// take least: 24 C^2 per token and block of GPT-2. Forward takes 2 C (T + 1) more, and the
/// gradients of inputs 5 C (T + 1) more, both beside softmax. Recomputation counts with the
/// gradients of inputs, and for zb-h1 once more with those of weights.
inline StageTimes counted_times(const StageLayout& stage, const Recompute& recompute) {
  const GptConfig& gpt = stage.gpt;
  const int64_t T = gpt.seq_len, NH = gpt.heads, HS = gpt.head_size(),
                chunks = stage.position.chunks;
  const auto blocks = static_cast<double>(chunks * stage.model_chunk.layers);
  const auto linear = static_cast<double>(2 * T * gpt.block_matrices());
  const auto core = static_cast<double>(cost::attention_forward(1, T, NH, HS).flops);
  const auto back = static_cast<double>(cost::attention_backward(1, T, NH, HS).flops);
  const auto again = static_cast<double>(chunks * recompute.extra_flops(stage.model_chunk, 1));
  return {.forward = blocks * (linear + core),
          .input = blocks * (linear + back) + again,
          .weight = blocks * linear + (stage.times_again() == 2 ? again : 0)};
}

/// How long stages will wait; "" if there is one stage.
inline std::string bubble_text(const StageLayout& stage, const Recompute& recompute) {
  if (stage.position.size == 1) return "";
  const auto [F, B, W] = counted_times(stage, recompute);
  const PipelineKind kind = stage.options.kind;
  const double idle =
      theory_idle_share(kind, stage.position.size, stage.position.chunks, stage.micros, F, B, W);
  return fmt::format(
      "\n  {}, {} micro-batches: stages wait {:.1f}% of the time, if forward and the gradients of "
      "inputs\n  and weights take 1 : {:.2f} : {:.2f} (their operations are counted)",
      to_string(kind), stage.micros, 100 * idle, B / F, W / F);
}

/// The plan of all ranks, for the screen.
inline std::string plan_text(const MeshPlan& plan) {
  const RankPlan& first = plan.stages()[0];
  return mesh_text(plan) + bubble_text(first.stage, first.recompute);
}

/// {"tp": {"predicted": n, "measured": n}, "dp": ..., "pp": ...}; null: not known
inline nlohmann::json axes_json(std::span<const Axis> axes, const AxisTraffic& predicted,
                                const AxisTraffic& measured) {
  const auto number = [](std::optional<int64_t> n) { return n ? nlohmann::json(*n) : nullptr; };
  nlohmann::json json;
  for (const Axis axis : axes)
    json[std::string(to_string(axis))] = {{"predicted", number(predicted[axis])},
                                          {"measured", number(measured[axis])}};
  return json;
}

/// --plan-only, for one rank of each stage. It starts no ranks. @throws UserError as a run would
inline void show_plan(const RunOptions& run, const MeshPlan& plan) {
  const bool first = launched_rank() == 0;
  if (first && !run.quiet) fmt::print("{}\n", plan_text(plan));
  std::vector<nlohmann::json> memory, traffic;
  for (int s = 0; s < std::ssize(plan.stages()); ++s) {
    const RankPlan& stage = plan.stages()[static_cast<size_t>(s)];
    const int rank = plan.first_rank(s);
    memory.push_back(memory_json(rank, stage.run.predicted, /*measured=*/{}));
    traffic.push_back(axes_json(plan.axes(), stage.sent, /*measured=*/{}));
    traffic.back()["rank"] = rank;
  }
  if (first) write_plan(run, plan.stages()[0].run, memory, {{"traffic", traffic}});
}

/// Reports on rank 0 what each rank sent in the last step. All ranks call it.
inline void report_axes(Log& log, Comm& world, const MeshPlan& plan, const AxisTraffic& measured) {
  AxisTraffic predicted = plan.of(world.rank()).sent;
  if (log.last_step_skipped()) predicted[Axis::Data].reset();  // no new weights were gathered
  if (log.steps() == 0) predicted = measured;                  // no step: nothing was sent
  // A group of its own, so that these texts do not count as traffic of the run.
  const std::unique_ptr<Comm> group = world.split(0, world.rank());
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& text :
       gather_text(*group, axes_json(plan.axes(), predicted, measured).dump()))
    all.push_back(nlohmann::json::parse(text));
  log.extra()["traffic"] = std::move(all);
}

}  // namespace ladder
