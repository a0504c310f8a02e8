// All axes at once: which ranks there are, and which of them form a group. A group is a slice of
// one array of ranks.
//
//   rank = t + TP (c + CP (s + S (g + R p)))
//
//   t   tensor     its part of each layer (chapter 11); the fastest
//   c   context    its tokens of each sequence (20)
//   s   shard      its shard of the states (09); shards have sequences of their own
//   g   replica    its copy of all of the above (30); replicas, too
//   p   pipeline   its layers (12)
//
// The first four are in the order of how often ranks exchange: tensor ranks four times a block and
// micro-batch, context ranks three times (--context gather); shards sum each section once a
// micro-batch; replicas sum once a step. Stages send a tensor a micro-batch and compute meanwhile.
//
// Seven groups of a rank say where each number travels. The ranks of a group differ along the axes
// that are named here, and in nothing else:
//
//   t           products inside a block; with --sequence-parallel also gradients of gains
//   c           keys and values; the loss of a sequence
//   c, s        gradients of a section, in every micro-step; new weights, once a step
//   g           sums of gradients, once a step
//   s, g        losses of other sequences; what is validated
//   p           activations and their gradients, from stage to stage
//   all but g   the norm of the gradient, and the hash of the weights. With g each would count R
//               times
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chapters/13_3d_parallel/mesh_options.h"
#include "chapters/20_context_parallel/context.h"
#include "chapters/30_hsdp/hsdp.h"

namespace ladder {

struct FullMeshOptions : PlanOptions {
  /// The mesh of `ranks` ranks. ranks 1 means that no number was given: then there are as many as
  /// the axes need, without shards. The shards are what the other axes leave.
  /// @throws UserError if the axes do not divide the ranks
  MeshShape shape(const TensorParallelOptions& tp, const ContextOptions& context,
                  const PipelineOptions& pp, const HsdpOptions& hsdp, int ranks) const {
    require_range("--replicas", hsdp.replicas, 1, kMost);
    MeshShape mesh{{Axis::Tensor, std::max(1, tp.tp)},
                   {Axis::Context, context.cp},
                   {Axis::Replica, hsdp.replicas},
                   {Axis::Pipeline, std::max(1, pp.pp)}};
    int64_t others = 1;
    for (const Axis axis : kAxes) others *= mesh[axis];
    const int64_t all = ranks == 1 ? others : ranks;
    if (all % others != 0 || all > kMost)
      throw UserError(
          "--tp {} x --cp {} x --replicas {} x --pp {} are {} ranks, which must divide {}; legal "
          "are at most {} ranks",
          mesh[Axis::Tensor], context.cp, hsdp.replicas, mesh[Axis::Pipeline], others, all, kMost);
    mesh[Axis::Data] = static_cast<int>(all / others);
    return mesh;
  }
  void set_ranks(RunOptions& run, const TensorParallelOptions& tp, const ContextOptions& context,
                 const PipelineOptions& pp, const HsdpOptions& hsdp) const {
    PlanOptions::set_ranks(run, [&](int ranks) { return shape(tp, context, pp, hsdp, ranks); });
  }
};

/// Checks that tensor ranks can split the tokens of a context rank. They cut inside its two runs,
/// so each has whole chunks of the sums over tokens. @throws UserError if they cannot
inline void check_tokens(const TensorParallelOptions& options, const GptConfig& gpt, int64_t tp,
                         int64_t cp) {
  if (!options.sequence_parallel || cp == 1) return;
  if (tp * cp > kTokenChunks || gpt.seq_len % (tp * cp) != 0)
    throw UserError(
        "--sequence-parallel with --tp {} x --cp {}: {} ranks cannot split a sequence of {} tokens "
        "into whole chunks; legal are at most {} ranks, which divide the tokens",
        tp, cp, tp * cp, gpt.seq_len, kTokenChunks);
}

// Along which axes the ranks of a group differ, the fastest first.
using Axes = std::vector<Axis>;
/// Of ranks that sum gradients in every micro-step, and each have a shard (Data) of the states.
inline Axes shard_axes() { return {Axis::Context, Axis::Data}; }
/// Of ranks with other sequences.
inline Axes batch_axes() { return {Axis::Data, Axis::Replica}; }
/// Of ranks that together have the model once.
inline Axes model_axes() { return {Axis::Tensor, Axis::Context, Axis::Data, Axis::Pipeline}; }
/// Of all ranks, in the order of a checkpoint: model after model.
inline Axes storage_axes() {
  Axes axes = model_axes();
  axes.push_back(Axis::Replica);
  return axes;
}

/// The ranks that differ from `rank` at most in their coordinates along `axes`. The first of these
/// is the fastest.
inline std::vector<int> ranks_along(const MeshShape& mesh, int rank, const Axes& axes) {
  std::vector<int> ranks{rank};
  for (const Axis axis : axes) {
    std::vector<int> all;
    for (int i = 0; i < mesh[axis]; ++i)
      for (const int each : ranks) {
        MeshCoordinate at = mesh.coordinate(each);
        at[axis] = i;
        all.push_back(mesh.rank(at));
      }
    ranks = all;
  }
  return ranks;
}

/// A group of these ranks, in their order. All ranks of `world` call it.
inline std::unique_ptr<Comm> split_along(Comm& world, const MeshShape& mesh, const Axes& axes) {
  const std::vector<int> ranks = ranks_along(mesh, world.rank(), axes);
  const auto place = std::ranges::find(ranks, world.rank()) - ranks.begin();
  return world.split(*std::ranges::min_element(ranks), static_cast<int>(place));
}

/// The groups of several axes. (Those of one axis are a Mesh.)
struct MeshGroups {
  std::unique_ptr<Comm> shards, batch, model, storage;

  MeshGroups(Comm& world, const MeshShape& mesh)
      : shards(split_along(world, mesh, shard_axes())),
        batch(split_along(world, mesh, batch_axes())),
        model(split_along(world, mesh, model_axes())),
        storage(split_along(world, mesh, storage_axes())) {}
};

/// The groups, for the screen: "c, s   0 2 4 6 | 1 3 5 7 | ...".
inline std::string groups_text(const MeshShape& mesh) {
  constexpr size_t kWidth = 60;
  const auto row = [&](std::string_view name, const Axes& axes) {
    std::string groups;
    for (int rank = 0; rank < mesh.size() && groups.size() < kWidth; ++rank) {
      const std::vector<int> ranks = ranks_along(mesh, rank, axes);
      if (*std::ranges::min_element(ranks) < rank) continue;  // it has been shown
      groups += fmt::format("{}{}", groups.empty() ? "" : " | ", fmt::join(ranks, " "));
    }
    if (groups.size() > kWidth) groups = groups.substr(0, kWidth) + " ...";
    return fmt::format("\n  {:<16} {}", name, groups);
  };
  return "\n  groups of ranks" + row("tensor", {Axis::Tensor}) + row("context", {Axis::Context}) +
         row("context, shard", shard_axes()) + row("replica", {Axis::Replica}) +
         row("shard, replica", batch_axes()) + row("pipeline", {Axis::Pipeline}) +
         row("all but replica", model_axes());
}

}  // namespace ladder
