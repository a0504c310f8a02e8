// The plan of a mesh before anything runs: what each rank will hold and send, and how long stages
// will wait.
//
// A plan needs only the formulas of earlier chapters. So it can be made for machines that do not
// exist here: --plan-only --world 1024.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/11_tensor_parallel/traffic.h"
#include "chapters/12_pipeline_parallel/stage_layout.h"
#include "common/comm/mesh.h"
#include "common/model/activations.h"
#include "common/run/report.h"

namespace ladder {

/// The axes of this chapter's mesh. (That of chapter 33 has all.)
inline constexpr std::array kMeshAxes{Axis::Tensor, Axis::Data, Axis::Pipeline};

/// Bytes that one rank sends in a step along each axis: gradients and weights on Axis::Data,
/// activations and their gradients on the others. None: there is no formula, because the reduction
/// loads ranks unevenly.
using AxisTraffic = PerAxis<std::optional<int64_t>>;

/// What a rank will do, hold and send.
struct RankPlan {
  RunPlan run;
  StageLayout stage;
  Recompute recompute;
  AxisTraffic sent;  ///< in a step
};

/// The plans of all ranks.
class MeshPlan {
 public:
  using PlanOf = std::function<RankPlan(int rank)>;

  /// @param axes   those that are shown
  /// @param groups lines that are shown in the place of a grid of ranks
  MeshPlan(const MeshShape& mesh, PlanOf plan_of, std::span<const Axis> axes = kMeshAxes,
           std::string groups = "")
      : axes_(axes.begin(), axes.end()),
        groups_(std::move(groups)),
        mesh_(mesh),
        plan_of_(std::move(plan_of)) {
    for (int s = 0; s < mesh[Axis::Pipeline]; ++s) stages_.push_back(of(first_rank(s)));
  }

  const std::vector<Axis>& axes() const { return axes_; }
  const std::string& groups() const { return groups_; }
  const MeshShape& mesh() const { return mesh_; }
  RankPlan of(int rank) const { return plan_of_(rank); }
  /// The plan of the first rank of each stage. All ranks of a stage have the same plan.
  const std::vector<RankPlan>& stages() const { return stages_; }
  int first_rank(int stage) const { return mesh_.rank({{Axis::Pipeline, stage}}); }

 private:
  std::vector<Axis> axes_;
  std::string groups_;
  MeshShape mesh_;
  PlanOf plan_of_;
  std::vector<RankPlan> stages_;
};

/// tp_traffic() of one stage: its blocks, and the embedding or the head. `recompute` is that of one
/// part.
///
/// With sequence parallelism, backward gathers a gradient once for the inputs. For the weights,
/// whose turn may come later, each of a block's two branches gathers its input and the gradient
/// again.
/// @param cp ranks that split each sequence before these do (chapter 33)
inline int64_t tp_traffic_of_stage(const StageLayout& stage, const ActivationPlan& acts,
                                   const Recompute& recompute, int64_t sequences, int64_t cp = 1) {
  const int64_t chunks = stage.position.chunks;
  return tp_traffic(stage.gpt, acts,
                    {.blocks = chunks * stage.model_chunk.layers,
                     .again = chunks * stage.times_again() * recompute.blocks_again(),
                     .embed = stage.position.has_embed(),
                     .head = stage.position.has_head(),
                     .gathers = 4,  // those for the weights
                     .token_chunks = kTokenChunks / cp},
                    sequences);
}

}  // namespace ladder
