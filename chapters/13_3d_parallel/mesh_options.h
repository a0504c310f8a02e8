// The mesh: every rank has a number along each of three axes (common/comm/mesh.h). Options, and
// which meshes are legal.
//
//   rank = t + TP (d + DP s)      t  its part of each layer       0 .. TP-1, fastest
//                                 d  its share of the batch       0 .. DP-1
//                                 s  its stage of the pipeline    0 .. PP-1
//
//   TP 2, DP 2, PP 2              stage 0    stage 1
//                        d = 0     0  1       4  5      a row of two: ranks that split each layer
//                        d = 1     2  3       6  7      0, 2: the same weights, other sequences
//                                                       0, 4: the stages of one pipeline
//
// The axes are ordered by how much their ranks exchange (Narayanan et al., "Efficient Large-Scale
// Language Model Training on GPU Clusters", arXiv 2104.04473). Tensor ranks exchange activations
// four times per block, and wait each time. So they are neighbors, in one machine with NVLink. Data
// ranks exchange gradients and weights once per step. Stages send one activation per micro-batch,
// while they compute another. So stages may be in different machines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "chapters/08_zero1/zero1.h"
#include "chapters/11_tensor_parallel/tensor_parallel.h"
#include "chapters/12_pipeline_parallel/stage_layout.h"
#include "common/comm/run_ranks.h"
#include "common/error.h"
#include "common/run/command_line.h"
#include "common/run/options.h"

namespace ladder {

/// Flags of a plan, whose ranks need not exist here.
struct PlanOptions {
  static constexpr int kMost = 1 << 20;  ///< ranks

  int world = 0;

  void add_to(CommandLine& line) {
    line.group("13_3d_parallel");
    line.add("--world", world, "ranks of a --plan-only, which starts none of them; 0: --ranks",
             {.instead_of = "--ranks"});
  }

  /// Sets run.ranks to the size of the mesh, and checks it.
  /// @param shape_of the mesh of so many ranks; 1 means that no number was given
  /// @throws UserError as shape_of() and RunOptions::check() do
  template <class ShapeOf>
  void set_ranks(RunOptions& run, ShapeOf&& shape_of) const {
    if (world > 0 && !run.plan_only) throw UserError("--world is for --plan-only");
    require_range("--world", world, 0, kMost);
    const bool not_given = run.ranks == 1 && !run.plan_only;  // mpirun may have started several
    const int here = not_given ? launched_processes() : run.ranks;
    run.ranks = shape_of(world > 0 ? world : here).size();
    run.plan_only ? run.check_size(run.ranks) : run.check();  // with that many ranks
  }
};

struct MeshOptions : PlanOptions {
  int dp = 0;

  void add_to(CommandLine& line) {
    line.group("13_3d_parallel");
    line.add("--dp", dp, "ranks that split the batch; 0: as many as --tp and --pp leave");
    PlanOptions::add_to(line);
  }

  /// The mesh of `ranks` ranks. ranks 1 means that no number was given: then there are as many
  /// ranks as the axes need. An axis of 0 becomes 1, except dp, which takes all ranks that the
  /// other axes leave.
  /// @throws UserError if the axes do not make that many ranks
  MeshShape shape(const TensorParallelOptions& tp, const PipelineOptions& pp, int ranks) const {
    require_range("--dp", dp, 0, kMost);
    const auto at_least_1 = [](int64_t degree) { return std::max<int64_t>(1, degree); };
    const int64_t others = at_least_1(tp.tp) * at_least_1(pp.pp);
    const int64_t all = ranks == 1 ? others * at_least_1(dp) : ranks;
    const int64_t shares = dp == 0 ? at_least_1(all / others) : dp;
    const std::string axes =
        fmt::format("--tp {} x --dp {} x --pp {} are {} ranks", at_least_1(tp.tp), shares,
                    at_least_1(pp.pp), others * shares);
    if (all > kMost) throw UserError("{}, and at most {} are legal", axes, kMost);
    if (others * shares != all)
      throw UserError("{}, not {}; legal are axes whose product is {}", axes, all, all);
    return {{Axis::Tensor, std::max(1, tp.tp)},
            {Axis::Data, static_cast<int>(shares)},
            {Axis::Pipeline, std::max(1, pp.pp)}};
  }
  void set_ranks(RunOptions& run, const TensorParallelOptions& tp,
                 const PipelineOptions& pp) const {
    PlanOptions::set_ranks(run, [&](int ranks) { return shape(tp, pp, ranks); });
  }
};

}  // namespace ladder
