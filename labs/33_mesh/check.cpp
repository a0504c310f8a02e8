// Meshes, their groups, and sums of gradients that are drawn. Nothing is trained.
#include "labs/check.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "chapters/33_mesh/mesh_groups.h"
#include "common/comm/reduction.h"
#include "common/model/measure.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

std::string text(const MeshShape& mesh) {
  std::string sizes;
  for (const Axis axis : kAxes)
    if (mesh[axis] > 1)
      sizes += fmt::format("{}{} {}", sizes.empty() ? "" : ", ", to_string(axis), mesh[axis]);
  return sizes.empty() ? "one rank" : sizes;
}
std::string names(const Axes& axes) {
  std::string all;
  for (const Axis axis : axes) all += fmt::format("{} ", to_string(axis));
  return all;
}
template <class T>
std::vector<T> sorted(std::vector<T> all) {
  std::ranges::sort(all);
  return all;
}

// ---- the mesh of some flags ---------------------------------------------------------------------

struct Flags {
  int tp, cp, replicas, pp, ranks;
};

std::string shape_text(const Flags& f) {
  TensorParallelOptions tp;
  tp.tp = f.tp;
  ContextOptions context;
  context.cp = f.cp;
  PipelineOptions pp;
  pp.pp = f.pp;
  HsdpOptions hsdp;
  hsdp.replicas = f.replicas;
  try {
    const MeshShape mesh = FullMeshOptions().shape(tp, context, pp, hsdp, f.ranks);
    std::string sizes;
    for (const Axis axis : kAxes) sizes += fmt::format(" {}", mesh[axis]);
    return sizes;
  } catch (const UserError&) {
    return "refused";
  }
}

void run_shapes(Sheet& sheet) {
  const int more = sheet.pick("more", {2, 4});
  const std::vector<std::pair<const char*, std::vector<Flags>>> kinds{
      {"shards are what is left", {{2, 2, 2, 2, 16 * more}, {1, 2, 1, 1, 8}, {0, 1, 1, 0, more}}},
      {"no number of ranks", {{2, 2, 2, more, 1}, {0, 1, 1, 0, 1}}},
      {"others", {{2, 2, 2, 2, 24}, {2, 2, 1, 1, 2}, {1, 1, 0, 1, 4}, {1, 1, -2, 1, 4}}}};
  for (const auto& [name, all] : kinds) {
    std::string found;
    for (const Flags& flags : all) found += shape_text(flags) + ";";
    sheet.text(fmt::format("mesh/shape: {}", name), found);
  }
}

/// @param pairs tp and cp
void run_tokens(Sheet& sheet, const char* name, bool sequence_parallel, int64_t tokens,
                const std::vector<std::pair<int, int>>& pairs) {
  std::string found;
  for (const auto& [tp, cp] : pairs) {
    TensorParallelOptions options;
    options.tp = tp;
    options.sequence_parallel = sequence_parallel;
    GptConfig gpt = small_gpt();
    gpt.seq_len = tokens;
    try {
      check_tokens(options, gpt, tp, cp);
      found += fmt::format("{} x {} legal; ", tp, cp);
    } catch (const UserError&) {
      found += fmt::format("{} x {} refused; ", tp, cp);
    }
  }
  sheet.text(fmt::format("mesh/tokens: {}", name), found);
}

// ---- groups -------------------------------------------------------------------------------------

void run_slices(Sheet& sheet, const MeshShape& mesh) {
  for (const Axes& axes :
       {Axes{}, Axes{Axis::Tensor}, Axes{Axis::Context}, Axes{Axis::Replica}, Axes{Axis::Pipeline},
        Axes{Axis::Replica, Axis::Tensor}, Axes{Axis::Pipeline, Axis::Data, Axis::Context}}) {
    std::string who, order;
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const std::vector<int> ranks = ranks_along(mesh, rank, axes);
      who += fmt::format("{};", fmt::join(sorted(ranks), " "));
      order += fmt::format("{};", fmt::join(ranks, " "));
    }
    sheet.text(fmt::format("groups/{}: along {}", text(mesh), names(axes)), who);
    if (axes.size() > 1)
      sheet.text(fmt::format("order/{}: along {}", text(mesh), names(axes)), order);
  }
}

/// What a rank has found: who is in its groups, sums, and the norm.
struct Found {
  std::string who, order, norm;
  std::vector<Row> sums;
};

struct Case {
  MeshShape mesh;
  GptConfig gpt;

  /// What the rank at `at` has of the model, in as many shards as context ranks and shards.
  ParamLayout params(const MeshCoordinate& at) const {
    const int64_t shards = int64_t{mesh[Axis::Context]} * mesh[Axis::Data];
    const TensorRank tensor{at[Axis::Tensor], mesh[Axis::Tensor]};
    return ParamLayout(gpt, shards, tensor, {at[Axis::Pipeline], mesh[Axis::Pipeline], 1});
  }
};

/// Gradients of one number each: what the ranks of (context, shard) sum in a micro-step.
void sum(const Sheet& sheet, OneRank& me, Comm& shards, int rank, Found& found) {
  constexpr int64_t kEach = 5;
  const int64_t elements = kEach * shards.size();
  const Tensor grads = me.arena.zeros(Mem::Grad, "drawn", Dtype::F32, {elements});
  sheet.draw(grads, "gradients", static_cast<uint64_t>(rank) + 1);
  Collectives collectives(shards, me.ctx, Reduction::Halving, me.arena, Dtype::F32, elements);
  const Chunks chunks{elements, shards.size()};
  collectives.reduce_scatter(grads, chunks);
  found.sums.push_back({"its chunk of the sum", numbers(chunks.of(grads, shards.rank()))});
}

void work(const Sheet& sheet, const Case& c, Comm& world, Found& found) {
  OneRank me(world);
  const int rank = world.rank();
  const MeshGroups groups(world, c.mesh);
  for (Comm* group : {groups.shards.get(), groups.batch.get(), groups.storage.get()}) {
    const std::vector<int64_t> all = members(*group, rank);
    found.who += fmt::format("{};", fmt::join(sorted(all), " "));
    found.order += fmt::format("{};", fmt::join(all, " "));
  }
  sum(sheet, me, *groups.shards, rank, found);

  const MeshCoordinate at = c.mesh.coordinate(rank);
  const ParamLayout local =
      c.params(at).shard(at[Axis::Context] + int64_t{c.mesh[Axis::Context]} * at[Axis::Data]);
  const Shard grads{me.arena.zeros(Mem::Grad, "grads", Dtype::F32, {local.grads().size()})};
  MeshCoordinate first = at;  // replicas have summed: theirs are alike
  first[Axis::Replica] = 0;
  sheet.draw(grads.tensor, "sums", static_cast<uint64_t>(c.mesh.rank(first)) + 1);
  const Tensor limbs = me.arena.shared(Mem::Workspace, "limbs", Dtype::I64, {1, kLimbs});
  found.norm = fmt::format("{:.12g}", grad_norm(me.ctx, grads, local, limbs, groups.model.get()));
}

void run_groups(Sheet& sheet, const Case& c) {
  const auto found = on_ranks<Found>(
      c.mesh.size(), [&](Comm& world, Found& mine) { work(sheet, c, world, mine); });
  for (size_t r = 0; r < found.size(); ++r) {
    sheet.text(fmt::format("groups/rank {}: shards; batch; storage", r), found[r].who);
    sheet.text(fmt::format("order/rank {}: shards; batch; storage", r), found[r].order);
    write(sheet, "order", r, found[r].sums);
    sheet.text(fmt::format("norm/rank {}", r), found[r].norm);
  }
}

}  // namespace

void cases(Sheet& sheet) {
  sheet.run("flags", [&] { run_shapes(sheet); });
  const auto tokens = sheet.pick<int64_t>("tokens", {64, 128, 512});
  sheet.run("tokens that two axes cut", [&] {
    run_tokens(sheet, "whole chunks", true, tokens, {{2, 8}, {4, 4}, {8, 2}, {2, 2}});
    run_tokens(sheet, "more ranks than chunks", true, tokens, {{4, 8}, {8, 4}, {8, 8}});
    run_tokens(sheet, "tokens that are left", true, tokens + 8, {{4, 4}, {2, 4}, {2, 2}});
    run_tokens(sheet, "no context ranks", true, tokens + 4, {{8, 1}, {2, 1}});
    run_tokens(sheet, "tokens not shared", false, tokens + 4, {{8, 8}, {4, 8}});
  });
  GptConfig gpt = small_gpt();
  gpt.layers = 2;
  gpt.heads = 2;
  gpt.channels = 32;
  gpt.positions = sheet.pick<int64_t>("positions", {40, 70});
  const Axis doubled = sheet.pick("doubled", {Axis::Tensor, Axis::Data});
  MeshShape all{{Axis::Context, 2}, {Axis::Data, 2}, {Axis::Replica, 2}, {Axis::Pipeline, 2}};
  sheet.run(text(all) + ", slices", [&] { run_slices(sheet, all); });
  sheet.run(text(all), [&] { run_groups(sheet, {all, gpt}); });
  MeshShape some{{Axis::Tensor, 2}, {Axis::Data, 2}, {Axis::Replica, 2}, {Axis::Pipeline, 2}};
  if (doubled == Axis::Data) some = {{Axis::Tensor, 2}, {Axis::Context, 4}, {Axis::Replica, 2}};
  sheet.run(text(some) + ", slices", [&] { run_slices(sheet, some); });
  sheet.run(text(some), [&] { run_groups(sheet, {some, gpt}); });
}

}  // namespace ladder::lab
