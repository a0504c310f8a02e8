// Groups, sequences and the sum over replicas, on gradients that are drawn. Nothing is trained.
#include "labs/check.h"

#include <string>
#include <vector>

#include "chapters/30_hsdp/hsdp.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

struct Case {
  int ranks, replicas;
  GptConfig gpt;

  int shards() const { return ranks / replicas; }
  std::string name() const { return fmt::format("{} ranks, {} replicas", ranks, replicas); }
};

/// What a rank has found: the numbers of the ranks in its groups, and its gradient in each step.
struct Found {
  std::string shards, replicas;
  std::vector<Row> sums;
  int64_t sent = 0;
};

void work(const Sheet& sheet, const Case& c, Comm& world, Found& found) {
  OneRank me(world);
  auto& [run, arena, ctx] = me;
  const int rank = world.rank();
  const HsdpPlace place{c.shards(), rank};
  const HsdpGroups groups = split_groups(world, place);
  found.shards = fmt::format("{}", fmt::join(members(*groups.shards, rank), " "));
  found.replicas = fmt::format("{}", fmt::join(members(*groups.replicas, rank), " "));
  const ParamLayout shard = ParamLayout(c.gpt, c.shards()).shard(rank % c.shards());
  const Shard grads{arena.zeros(Mem::Grad, "grads", Dtype::F32, {shard.grads().size()})};
  CommStream stream = open_comm_stream(arena, ctx, *groups.replicas, run, {}, shard.grads().size());
  int64_t before = 0;
  for (uint64_t step = 0; step < 2; ++step) {
    before = stream.group().statistics().wire_bytes();
    sheet.draw(grads.tensor, "gradients", 100 * step + static_cast<uint64_t>(rank) + 1);
    sum_over_replicas(ctx, stream, grads);
    found.sums.push_back({fmt::format("step {}", step + 1), numbers(grads.tensor)});
  }
  found.sent = stream.group().statistics().wire_bytes() - before;
}

void run_groups(Sheet& sheet, const Case& c) {
  const auto found =
      on_ranks<Found>(c.ranks, [&](Comm& world, Found& mine) { work(sheet, c, world, mine); });
  for (size_t r = 0; r < found.size(); ++r) {
    sheet.text(fmt::format("groups/members: rank {}, shards", r), found[r].shards);
    sheet.text(fmt::format("groups/members: rank {}, replicas", r), found[r].replicas);
    write(sheet, "sums", r, found[r].sums);
  }
  // Without the idea every rank sends its whole gradient to each replica.
  const ParamLayout shard = ParamLayout(c.gpt, c.shards()).shard(0);
  sheet.without_idea("sent", 4 * int64_t{c.ranks} * (c.replicas - 1) * shard.grads().size());
  sheet.count("sent", sum_of(found, &Found::sent));
}

/// Gets points only if it is right for all ranks of a case.
void run_places(Sheet& sheet, const Case& c) {
  const auto share = sheet.pick<int64_t>("share", {4, 8});
  for (const int64_t micro : {int64_t{1}, share / 2, share}) {
    std::string all;
    for (int rank = 0; rank < c.ranks; ++rank) {
      const HsdpPlace place{c.shards(), rank};
      all += fmt::format(" rank {}:", rank);
      for (int64_t k = 0; k < share / micro; ++k)
        all += fmt::format(" {}", place.first(share, k, micro));
    }
    sheet.text(fmt::format("sequences/first: {}, {} of {}", c.name(), micro, share), all);
  }
  std::string own;
  for (int rank = 0; rank < c.ranks; ++rank) {
    const HsdpPlace place{c.shards(), rank};
    own += fmt::format(" {} {} {}", place.group(), place.shard(), place.first_of_group(share));
  }
  sheet.text("sequences/group, shard, first: " + c.name(), own);
}

void run_options(Sheet& sheet) {
  const auto ranks = sheet.pick<int64_t>("ranks", {4, 6, 8});
  for (const int replicas : {-1, 0, 1, 2, 3, 4, 5, 8}) {
    HsdpOptions options;
    options.replicas = replicas;
    std::string shards = "refused";
    try {
      shards = fmt::format("{}", options.shards(ranks));
    } catch (const UserError&) {
    }
    sheet.text(fmt::format("groups/size: {} ranks, {} replicas", ranks, replicas), shards);
  }
}

/// Gets points only if it is right in all cases.
void run_formula(Sheet& sheet, const std::vector<Case>& all) {
  const auto bytes_of = [](const Case& c, const DdpOptions& ddp) {
    const auto bytes = replica_traffic(ParamLayout(c.gpt, c.shards()).shard(0), ddp, c.replicas);
    return bytes ? fmt::format("{}", *bytes) : "none";
  };
  for (const Case& c : all) sheet.text("formula/bytes: " + c.name(), bytes_of(c, {}));
  DdpOptions uneven;
  uneven.reduction = Reduction::Tree;
  sheet.text("formula/none: an uneven reduction", bytes_of(all.front(), uneven));
  sheet.text("formula/none: chunks of unlike sizes", bytes_of({6, 3, all.front().gpt}, {}));
}

}  // namespace

void cases(Sheet& sheet) {
  std::vector<Case> all;
  GptConfig gpt = small_gpt();
  gpt.layers = sheet.pick<int64_t>("layers", {1, 2});
  gpt.positions = sheet.pick<int64_t>("positions", {40, 70});
  for (const auto& [ranks, replicas] :
       {std::pair{4, 2}, {8, sheet.pick("replicas", {2, 4})}, {8, 8}, {4, 1}})
    all.push_back({.ranks = ranks, .replicas = replicas, .gpt = gpt});
  all.back().gpt.tied_head = all.front().gpt.tied_head = true;  // more gradients than weights
  for (const Case& c : all) {
    sheet.run(c.name(), [&] { run_groups(sheet, c); });
    sheet.run(c.name() + ", sequences", [&] { run_places(sheet, c); });
  }
  sheet.run("by --replicas", [&] { run_options(sheet); });
  sheet.run("by formula", [&] { run_formula(sheet, all); });
}

}  // namespace ladder::lab
