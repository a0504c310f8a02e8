// The plan of a mesh, before anything runs: what each rank will hold and send, and how long stages
// will wait.
//
// It needs the formulas of the chapters before and nothing else, so it can be made for machines
// that are not there: --plan-only --world 1024.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/11_tensor_parallel/traffic.h"
#include "chapters/12_pipeline_parallel/pipeline_clock.h"
#include "chapters/12_pipeline_parallel/stage_layout.h"
#include "chapters/13_3d_parallel/mesh.h"
#include "common/comm/gather_text.h"
#include "common/comm/run_ranks.h"
#include "common/model/activations.h"
#include "common/run/options.h"
#include "common/run/output_file.h"
#include "common/run/report.h"
#include "kernels/arena.h"

namespace ladder {

/// Bytes that one rank sends in a step, along each axis.
struct AxisTraffic {
  int64_t tp = 0;             ///< activations and their gradients, to ranks that share each layer
  std::optional<int64_t> dp;  ///< gradients and weights; none: the reduction loads ranks unevenly
  int64_t pp = 0;             ///< activations and their gradients, to the next stages
};

/// What a rank will do, hold and send.
struct RankPlan {
  RunPlan run;
  StageLayout stage;
  Recompute recompute;
  int64_t micros;    ///< micro-batches of a step
  AxisTraffic sent;  ///< in a step
};

/// The same of a rank of each stage: all of a stage are alike.
struct MeshPlan {
  MeshShape mesh;
  std::vector<RankPlan> stages;
};

/// Of one stage: of its own blocks, and of embedding and head if it has them.
///
/// Under sequence parallelism backward gathers a gradient once for the inputs and once more for the
/// weights, which may come later.
inline int64_t tp_traffic_of_stage(const StageLayout& stage, const ActivationPlan& acts,
                                   const Recompute& recompute, int64_t sequences) {
  const int64_t chunks = stage.rank.chunks;
  return tp_traffic(stage.gpt, acts,
                    {.blocks = chunks * stage.part.layers,
                     .again = chunks * stage.times_again() * recompute.blocks_again(),
                     .embed = stage.rank.has_embed(),
                     .head = stage.rank.has_head(),
                     .gathers = 4},
                    sequences);
}

/// 0 .. n-1, or of many the first, -1 for those between, and the last.
inline std::vector<int> some_of(int n) {
  constexpr int kMost = 8;
  std::vector<int> some;
  for (int i = 0; i < n; ++i)
    if (n <= kMost || i < kMost - 2 || i == n - 1) some.push_back(i);
  if (n > kMost) some.insert(some.end() - 1, -1);
  return some;
}

/// Which rank stands where: a row for each share of the batch, a column for each stage, and in each
/// place the ranks that share its layers.
inline std::string grid_text(const MeshShape& mesh) {
  const auto place = [&](int d, int s) {
    if (d < 0 || s < 0) return std::string("...");
    const int first = mesh.rank({0, d, s});
    return mesh.tp == 1 ? fmt::format("{}", first)
                        : fmt::format("{}-{}", first, first + mesh.tp - 1);
  };
  const auto number = [](std::string_view name, int i) {
    return i < 0 ? "..." : fmt::format("{} {}", name, i);
  };
  std::string text = fmt::format("\n  {:<16}", "ranks");
  for (const int s : some_of(mesh.pp)) text += fmt::format(" {:>11}", number("stage", s));
  for (const int d : some_of(mesh.dp)) {
    text += fmt::format("\n  {:<16}", number("share", d));
    for (const int s : some_of(mesh.pp)) text += fmt::format(" {:>11}", place(d, s));
  }
  return text;
}

/// "1.50 GiB", "0.25 MiB"
inline std::string bytes_text(int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? fmt::format("{:.2f} MiB", mib) : fmt::format("{:.2f} GiB", mib / 1024);
}

using Cells = std::vector<std::string>;

/// A row for each stage, or for neighbors that are alike in all digits shown.
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

/// Of a rank of each stage, by category; those that no stage has left out.
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

inline std::string traffic_table(const std::vector<RankPlan>& stages) {
  std::vector<Cells> rows;
  for (const RankPlan& plan : stages)
    rows.push_back({bytes_text(plan.sent.tp), plan.sent.dp ? bytes_text(*plan.sent.dp) : "uneven",
                    bytes_text(plan.sent.pp)});
  return stage_table("sent in a step", {"tp", "dp", "pp"}, rows);
}

inline std::string mesh_text(const MeshPlan& plan) {
  const MeshShape& mesh = plan.mesh;
  const StageLayout& first = plan.stages[0].stage;
  const int64_t chunks = first.rank.chunks, layers = first.part.layers;
  std::string text = fmt::format(
      "mesh    tp {} x dp {} x pp {} = {} ranks; {} parameters; {} layers, {} on each stage{}\n",
      mesh.tp, mesh.dp, mesh.pp, mesh.size(), plan.stages[0].run.parameters, first.gpt.layers,
      chunks * layers, chunks == 1 ? "" : fmt::format(" in {} parts", chunks));
  text += grid_text(mesh).substr(1) + "\n  of one rank of a stage:";
  return text + memory_table(plan.stages) + traffic_table(plan.stages);
}

/// How long stages of `micros` micro-batches will wait; "" for one stage.
/// @param given times of --f-b-w; none: as many as there are operations to count
inline std::string bubble_text(const StageLayout& stage, const Recompute& recompute, int64_t micros,
                               const std::optional<StageTimes>& given) {
  if (stage.rank.size == 1) return "";
  const auto [F, B, W] = given.value_or(stage.counted_times(recompute));
  const PipelineKind kind = stage.options.kind();
  const double idle = theory_idle_share(kind, stage.rank.size, stage.rank.chunks, micros, F, B, W);
  return fmt::format(
      "\n  {}, {} micro-batches: stages wait {:.1f}% of the time, if forward and the gradients of "
      "inputs\n  and weights take 1 : {:.2f} : {:.2f} ({})",
      to_string(kind), micros, 100 * idle, B / F, W / F,
      given ? "--f-b-w" : "their operations are counted; --f-b-w sets other times");
}

/// The plan of all ranks, for the screen.
/// @param given as for bubble_text()
inline std::string plan_text(const MeshPlan& plan, const std::optional<StageTimes>& given) {
  const RankPlan& first = plan.stages[0];
  return mesh_text(plan) + bubble_text(first.stage, first.recompute, first.micros, given);
}

/// {"predicted": n, "measured": n}; null: not known.
inline nlohmann::json axis_json(std::optional<int64_t> predicted, std::optional<int64_t> measured) {
  const auto bytes = [](std::optional<int64_t> n) { return n ? nlohmann::json(*n) : nullptr; };
  return {{"predicted", bytes(predicted)}, {"measured", bytes(measured)}};
}

/// --report of --plan-only: that of a run, as far as a plan knows it, of one rank of each stage.
inline void write_plan(const RunOptions& run, const MeshPlan& plan) {
  if (run.report.empty() || launched_local_rank() != 0) return;
  nlohmann::json report = plan_json(plan.stages[0].run), traffic = nlohmann::json::array();
  report["run"] = run_json(run);
  report["plan_only"] = true;
  for (int s = 0; s < plan.mesh.pp; ++s) {
    const RankPlan& stage = plan.stages[static_cast<size_t>(s)];
    const AxisTraffic& sent = stage.sent;
    const int rank = plan.mesh.rank({0, 0, s});
    report["memory"].push_back(memory_json(rank, stage.run.predicted, /*measured=*/{}));
    traffic.push_back({{"rank", rank},
                       {"tp", axis_json(sent.tp, {})},
                       {"dp", axis_json(sent.dp, {})},
                       {"pp", axis_json(sent.pp, {})}});
  }
  report["extra"]["traffic"] = std::move(traffic);
  OutputFile file(run.report, "--report");
  file.write(report.dump(2) + "\n");
  file.commit();
}

/// On rank 0, of all ranks: [{"tp": {"predicted": n, "measured": n}, "dp": ..., "pp": ...}, ...].
/// All ranks call it.
inline nlohmann::json report_axes(Comm& world, const AxisTraffic& predicted,
                                  const AxisTraffic& measured) {
  const nlohmann::json own = {{"tp", axis_json(predicted.tp, measured.tp)},
                              {"dp", axis_json(predicted.dp, measured.dp.value())},
                              {"pp", axis_json(predicted.pp, measured.pp)}};
  nlohmann::json all = nlohmann::json::array();
  // In a group of its own, so that these texts do not count as traffic of the run.
  const std::unique_ptr<Comm> group = world.split(0, world.rank());
  for (const std::string& text : gather_text(*group, own.dump()))
    all.push_back(nlohmann::json::parse(text));
  return all;
}

}  // namespace ladder
