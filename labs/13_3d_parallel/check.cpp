// Places of ranks, groups along axes, and bytes that leave a node. Then what each stage will send
// and keep.
#include "labs/check.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "chapters/12_pipeline_parallel/stage_layout.h"
#include "chapters/13_3d_parallel/proof/plan.h"
#include "common/comm/mesh.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

std::string text_of(const MeshCoordinate& at) {
  return fmt::format("tp {}, dp {}, pp {}", at[Axis::Tensor], at[Axis::Data], at[Axis::Pipeline]);
}

/// "right", or what is wrong with the coordinates. The axes may have any order.
std::string verdict(const MeshShape& mesh) {
  std::set<std::string> coordinates;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const MeshCoordinate at = mesh.coordinate(rank);
    for (const Axis axis : kAxes)
      if (at[axis] < 0 || at[axis] >= mesh[axis])
        return fmt::format("rank {} is at {}, which is no coordinate of this mesh", rank,
                           text_of(at));
    if (!coordinates.insert(text_of(at)).second)
      return fmt::format("rank {} is at {}, as another is", rank, text_of(at));
    if (mesh.rank(at) != rank)
      return fmt::format("rank {} is at {}, and there is rank {}", rank, text_of(at),
                         mesh.rank(at));
  }
  return "right";
}

/// "right", or what is wrong with the group of `rank` along `axis`.
std::string verdict(const MeshShape& mesh, Axis axis, const std::vector<int64_t>& group, int rank) {
  std::vector<int64_t> wanted;
  for (int i = 0; i < mesh[axis]; ++i) {
    MeshCoordinate at = mesh.coordinate(rank);
    at[axis] = i;
    wanted.push_back(mesh.rank(at));
  }
  if (group == wanted) return "right";
  return fmt::format("the group has ranks {}; it must have {}", fmt::join(group, " "),
                     fmt::join(wanted, " "));
}

/// What a rank sends along an axis in a step of `blocks` blocks: sums of activations four times a
/// block, of gradients once, and from stage to stage an output.
void send(Comm& group, Axis axis, int64_t blocks, int64_t elements) {
  std::vector<float> numbers(static_cast<size_t>(elements), 1.0f);
  const Tensor data{.ptr = numbers.data(), .dtype = Dtype::F32, .shape = {elements}};
  const int next = group.rank() + 1, last = group.rank() - 1;
  if (axis == Axis::Tensor)
    for (int64_t i = 0; i < 4 * blocks; ++i) group.all_reduce(data);
  else if (axis == Axis::Data)
    group.all_reduce(data);
  else
    group.exchange(next < group.size() ? data.first(elements / 2) : Tensor{},
                   next < group.size() ? next : 0, last >= 0 ? data.first(elements / 2) : Tensor{},
                   std::max(0, last));
}

/// What a rank has found, of each axis.
struct Found {
  PerAxis<std::string> verdict;
  int64_t across = 0, all = 0;  ///< bytes
};

Found look(const MeshShape& shape, Comm& world, int per_node, int64_t blocks, int64_t elements) {
  const Mesh mesh(world, shape);
  Found found;
  for (const Axis axis : kAxes) {
    const std::vector<int64_t> group = members(mesh[axis], world.rank());
    found.verdict[axis] = verdict(shape, axis, group, world.rank());
    const int64_t before = mesh[axis].statistics().wire_bytes();
    send(mesh[axis], axis, blocks, elements);
    const int64_t bytes = mesh[axis].statistics().wire_bytes() - before;
    const auto elsewhere = [&](int64_t rank) { return rank / per_node != world.rank() / per_node; };
    found.all += bytes;
    if (std::any_of(group.begin(), group.end(), elsewhere)) found.across += bytes;
  }
  return found;
}

void run_mesh(Sheet& sheet, const MeshShape& shape, int per_node) {
  sheet.text("coordinates", verdict(shape));
  const auto blocks = sheet.pick<int64_t>("blocks", {2, 3, 4});
  const auto elements = sheet.pick<int64_t>("elements", {256, 512});
  const auto found = on_ranks<Found>(shape.size(), [&](Comm& world, Found& mine) {
    mine = look(shape, world, per_node, blocks, elements);
  });
  for (size_t r = 0; r < found.size(); ++r)
    for (const Axis axis : kAxes)
      sheet.text(fmt::format("groups/{} of rank {}", to_string(axis), r), found[r].verdict[axis]);
  sheet.without_idea("across", sum_of(found, &Found::all));
  sheet.count("across", sum_of(found, &Found::across));
}

struct PlanCase {
  PipelineOptions pipeline;
  int64_t stages, tp;
  bool sequence_parallel;
  std::string recompute;
  Dtype dtype;

  std::string name() const {
    return fmt::format("{}, tp {}{}, --recompute {}", to_string(pipeline.kind), tp,
                       sequence_parallel ? ", tokens shared" : "", recompute);
  }
};

/// The figures of one gate. A figure gets points only if it is right in all plans of a case, on all
/// stages.
void run_plan(Sheet& sheet, std::string_view gate, const PlanCase& c) {
  GptConfig gpt = preset("tiny");
  gpt.layers = 8;
  gpt.heads = 8;
  gpt.seq_len = sheet.pick<int64_t>("tokens", {32, 64});
  const int64_t micros = 2 * c.stages, sequences = 3 * micros;
  for (int64_t s = 0; s < c.stages; ++s) {
    const StageLayout stage(c.pipeline, gpt, s, c.pipeline.pipeline(gpt, c.stages, micros));
    const Recompute recompute(c.recompute, stage.model_chunk.layers, /*at_once=*/false);
    ActivationPlan acts = stage.plan({.dtype = c.dtype}, recompute);
    acts.tp = c.tp;
    acts.sequence_ranks = c.sequence_parallel ? c.tp : 1;
    const auto row = [&](const char* figure, const std::string& text) {
      sheet.text(fmt::format("{}: stage {} of {}, {}", figure, s, c.stages, c.name()), text);
    };
    if (gate == "memory") {
      row("memory/slots and bytes", fmt::format("{} slots, {} bytes", acts.slots,
                                                activation_bytes(stage.model_chunk, 1, acts)));
      row("memory/waiting()", fmt::format("{} wait", stage.waiting()));
    } else {
      row("plan/pp", fmt::format("{} bytes", stage.traffic(acts, sequences)));
      row("plan/tp",
          fmt::format("{} bytes", tp_traffic_of_stage(stage, acts, recompute, sequences)));
    }
  }
}

}  // namespace

void cases(Sheet& sheet) {
  const auto mesh = [&](int tp, int dp, int pp, int per_node) {
    const MeshShape shape{{Axis::Tensor, tp}, {Axis::Data, dp}, {Axis::Pipeline, pp}};
    sheet.run(fmt::format("tp {} x dp {} x pp {}, {} ranks a node", tp, dp, pp, per_node),
              [&] { run_mesh(sheet, shape, per_node); });
  };
  mesh(2, 2, 2, 2);
  mesh(2, 2, 2, 4);
  mesh(2, sheet.pick("dp", {1, 3}), 2, 2);
  mesh(2, 1, sheet.pick("pp", {3, 4}), 2);
  mesh(sheet.pick("tp", {3, 4}), 2, 1, 4);

  const auto plans = [&](std::string_view gate, const char* schedule) {
    for (const bool sequence_parallel : {false, true}) {
      PlanCase c{.pipeline = {},
                 .stages = sheet.pick<int64_t>("stages", {2, 4}),
                 .tp = sheet.pick<int64_t>("ranks", {2, 4, 8}),
                 .sequence_parallel = sequence_parallel,
                 .recompute = sequence_parallel ? "none" : "full",
                 .dtype = sequence_parallel ? Dtype::BF16 : Dtype::F32};
      c.pipeline.kind = *named<PipelineKind>(schedule);
      run_plan(sheet, gate, c);
    }
  };
  const std::array schedules{"1f1b", "interleaved", "zb-h1"};
  for (const char* schedule : schedules) sheet.run(schedule, [&] { plans("plan", schedule); });
  sheet.run("all schedules", [&] {
    for (const char* schedule : schedules) plans("memory", schedule);
  });
}

}  // namespace ladder::lab
