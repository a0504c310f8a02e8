// The plan of a mesh, before anything runs: what each rank will hold and send, and how long stages
// will wait.
//
// It needs the formulas of the chapters before and nothing else, so it can be made for machines
// that are not there: --plan-only --world 1024.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/12_pipeline_parallel/pipeline_clock.h"
#include "chapters/12_pipeline_parallel/stage_plan.h"
#include "chapters/13_3d_parallel/mesh.h"
#include "common/comm/gather_text.h"
#include "common/model/activations.h"
#include "kernels/arena.h"

namespace ladder {

/// Bytes that one rank sends in a step, along each axis.
struct AxisTraffic {
  int64_t tp = 0;             ///< activations and their gradients, to ranks that share each layer
  std::optional<int64_t> dp;  ///< gradients and weights; none: the reduction loads ranks unevenly
  int64_t pp = 0;             ///< activations and their gradients, to the next stages
};

struct RankPlan {
  MemoryBytes bytes;
  AxisTraffic sent;
};

/// As tp_traffic() of chapter 11, for one stage: of its own blocks, and of embedding and head if it
/// has them.
///
/// Under sequence parallelism backward gathers a gradient once for the inputs and once more for the
/// weights, which may come later.
inline int64_t tp_traffic_of_stage(const StagePlan& stage, const ActivationPlan& acts,
                                   const Recompute& recompute, int64_t sequences) {
  const int64_t blocks = stage.part.layers * stage.rank.chunks, t = acts.tp;
  const int64_t head = stage.rank.has_head() ? 1 : 0, embed = stage.rank.has_embed() ? 1 : 0;
  int64_t again = 0;  // blocks computed a second time
  for (int64_t l = 0; l < stage.part.layers; ++l) again += recompute.run_before(l).size();
  again *= stage.rank.chunks * stage.times_again();
  const bool gathers = acts.sequence_ranks > 1;
  const int64_t reductions = 4 * blocks + 2 * again + embed + head;
  const int64_t halves = 2 * reductions + (gathers ? 4 * blocks : 0);
  const int64_t partial =
      gathers ? 2 * 2 * (2 * blocks + head) * sequences * stage.gpt.channels : 0;
  const int64_t tokens = halves * sequences * stage.gpt.seq_len * stage.gpt.channels;
  return (t - 1) * (size_of(acts.dtype) * tokens + size_of(Dtype::F32) * partial) / t;
}

/// Which rank stands where: a row for each pipeline and tensor rank, a column for each stage. Of a
/// large mesh the first rows.
inline std::string grid_text(const MeshShape& mesh) {
  constexpr int kRows = 8, kColumns = 16;
  const int columns = std::min(mesh.pp, kColumns);
  std::string text = "\n           ";
  for (int s = 0; s < columns; ++s) text += fmt::format(" stage {:<3}", s);
  if (columns < mesh.pp) text += " ...";
  for (int row = 0; row < std::min(mesh.tp * mesh.dp, kRows); ++row) {
    const int d = row / mesh.tp, t = row % mesh.tp;
    text += fmt::format("\n  d {:<3} t {}", d, t);
    for (int s = 0; s < columns; ++s) text += fmt::format(" {:>7}  ", mesh.rank({t, d, s}));
  }
  return text + (mesh.tp * mesh.dp > kRows ? "\n  ..." : "");
}

/// "1.50 GiB", "0.25 MiB"
inline std::string bytes_text(int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? fmt::format("{:.2f} MiB", mib) : fmt::format("{:.2f} GiB", mib / 1024);
}

/// @param stages the plan of a rank of each stage: all of a stage are alike
inline std::string mesh_plan_text(const MeshShape& mesh, const StagePlan& first, int64_t micros,
                                  int64_t parameters, const std::vector<RankPlan>& stages) {
  std::string text = fmt::format(
      "mesh    tp {} x dp {} x pp {} = {} ranks; {} parameters, {} layers in parts of {} on each "
      "stage\n{}",
      mesh.tp, mesh.dp, mesh.pp, mesh.size(), parameters, first.gpt.layers,
      fmt::join(std::vector<int64_t>(static_cast<size_t>(first.rank.chunks), first.part.layers),
                " + "),
      grid_text(mesh).substr(1));
  text += "\n  of a rank, memory:";
  for (size_t i = 0; i < kMemCount; ++i) text += fmt::format(" {:>13}", kMemNames[i]);
  text += fmt::format(" {:>13}", "all");
  for (size_t s = 0; s < stages.size(); ++s) {
    text += fmt::format("\n  stage {:<12}", s);
    for (const int64_t bytes : stages[s].bytes.bytes)
      text += fmt::format(" {:>13}", bytes_text(bytes));
    text += fmt::format(" {:>13}", bytes_text(stages[s].bytes.total()));
  }
  text += fmt::format("\n  of a rank, sent a step: {:>13} {:>13} {:>13}", "tp", "dp", "pp");
  for (size_t s = 0; s < stages.size(); ++s) {
    const AxisTraffic& sent = stages[s].sent;
    text += fmt::format("\n  stage {:<17} {:>13} {:>13} {:>13}", s, bytes_text(sent.tp),
                        sent.dp ? bytes_text(*sent.dp) : "uneven", bytes_text(sent.pp));
  }
  const double idle =
      theory_idle_share(first.options.schedule, mesh.pp, first.rank.chunks, micros, 1, 1, 1);
  return text + fmt::format(
                    "\n  {} with {} micro-batches: stages wait {:.1f}% of the time, if "
                    "forward and either gradient take equally long",
                    first.options.schedule, micros, 100 * idle);
}

/// On rank 0, of all ranks: [{"tp": {"predicted": n, "measured": n}, "dp": ..., "pp": ...}, ...].
/// All ranks call it.
inline nlohmann::json report_axes(Comm& world, const AxisTraffic& predicted,
                                  const AxisTraffic& measured) {
  const auto axis = [](std::optional<int64_t> formula, std::optional<int64_t> count) {
    return nlohmann::json{{"predicted", formula ? nlohmann::json(*formula) : nlohmann::json()},
                          {"measured", *count}};
  };
  const nlohmann::json own = {{"tp", axis(predicted.tp, measured.tp)},
                              {"dp", axis(predicted.dp, measured.dp)},
                              {"pp", axis(predicted.pp, measured.pp)}};
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& text : gather_text(world, own.dump()))
    all.push_back(nlohmann::json::parse(text));
  return all;
}

}  // namespace ladder
