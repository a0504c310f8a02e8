// Hybrid sharding: each shard group has a whole model in shards, and shard groups are copies of
// each other (Zhao et al., "PyTorch FSDP", arXiv 2304.11277, section 3.2.2).
//
// Links inside a machine are often ten times as fast as those between machines. In chapter 10 a
// rank sends about 3 P elements in every micro-step, over all links that join the ranks. Here N
// ranks are R shard groups of S neighbors. Each has one whole model in S shards, so the 3 P stay
// inside it. Once a step gradients cross: each rank sends its shard of its group's sum.
//
//   ranks 0 1 2 3 | 4 5 6 7      R = 2 shard groups of S = 4
//     all-gather, reduce-scatter   among 0 1 2 3 and among 4 5 6 7, in every micro-step
//     all-reduce                   among 0 4, 1 5, 2 6 and 3 7, once a step
//
// Ranks 0 and 4 hold the same shard: they are replicas, and make up a replica group of R ranks. The
// price is memory: a rank holds 1/S of what belongs to parameters instead of 1/N.
//
// A shard group takes neighboring sequences of the batch. Micro-step k of shard s in shard group g
// has MBS sequences, from number g B/R + (k S + s) MBS on. With the default --reduction halving R,
// S, MBS and the micro-steps are powers of two. So each sum is a subtree of the batch: first over a
// micro-batch, then over shards, micro-steps, and replicas.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "chapters/07_ddp/ddp.h"
#include "common/comm/comm.h"
#include "common/comm/mesh_shape.h"
#include "common/error.h"
#include "common/model/layout.h"
#include "common/run/comm_stream.h"
#include "common/run/command_line.h"
#include "kernels/context.h"

namespace ladder {

struct HsdpOptions {
  int replicas = 1;

  void add_to(CommandLine& line) {
    line.group("30_hsdp");
    line.add(
        "--replicas", replicas,
        "R, how many ranks hold each shard: R shard groups of neighbors, each with a whole model");
  }

  /// S, ranks of a shard group. @throws UserError if `ranks` do not make `replicas` equal groups
  int64_t shards(int64_t ranks) const {
    if (replicas < 1 || ranks % replicas != 0)
      throw UserError("--replicas {} does not divide {} ranks; legal are the divisors of {}",
                      replicas, ranks, ranks);
    return ranks / replicas;
  }
  /// What a report says of the layout.
  MeshShape mesh(int64_t ranks) const {
    return {{Axis::Data, static_cast<int>(shards(ranks))}, {Axis::Replica, replicas}};
  }
};

/// Where a rank stands among N = R S ranks.
struct HsdpPlace {
  int64_t S;     ///< ranks of a shard group
  int64_t rank;  ///< 0 to N - 1

  int64_t group() const { return rank / S; }  ///< number of its shard group, 0 to R - 1
  int64_t shard() const { return rank % S; }  ///< 0 to S - 1

  /// The first sequence of its shard group, where a rank has `share` = B/N sequences of the batch:
  /// g S B/N = g B/R.
  int64_t first_of_group(int64_t share) const { return group() * S * share; }
  /// The first sequence of its micro-batch in micro-step k, where a micro-batch has `micro`.
  int64_t first(int64_t share, int64_t k, int64_t micro) const {
    return first_of_group(share) + (k * S + shard()) * micro;
  }
};

/// The two groups that a rank communicates in: the dimensions dp_shard and dp_replicate of a mesh.
/// (A Mesh, as in chapter 13, could make them; two calls of split() do, too.)
struct HsdpGroups {
  std::unique_ptr<Comm> shards;    ///< shard group: S neighbors, which together have one model
  std::unique_ptr<Comm> replicas;  ///< replica group: R ranks with the same shard
};

/// All ranks of `world` call it.
inline HsdpGroups split_groups(Comm& world, const HsdpPlace& place) {
  // Ranks of equal group() have the shards of one model; ranks of equal shard() are replicas.
  return {.shards = world.split(static_cast<int>(place.group()), world.rank()),
          .replicas = world.split(static_cast<int>(place.shard()), world.rank())};
}

/// Sums a shard's gradient over its replicas. F32 (shard.grads().size()). It waits at once: the
/// stream is there for its Collectives, its memory and its count of bytes. (An exercise overlaps
/// it.)
inline void sum_over_replicas(const Ctx& ctx, CommStream& replicas, const Shard& grads) {
  const Span span(ctx, "wait_for_replicas");
  replicas
      .run([grads](const Ctx& own, Collectives& collectives) {
        const Span inner(own, "all_reduce");
        collectives.all_reduce(grads.tensor);
      })
      .wait();
}

/// Bytes that one rank sends to its replicas in a step: an all-reduce of its shard's gradient. The
/// formula holds for reductions in which all ranks send equally many bytes, in equal chunks. For
/// others nothing is predicted.
inline std::optional<int64_t> replica_traffic(const ParamLayout& shard, const DdpOptions& ddp,
                                              int64_t replicas) {
  return ddp_traffic(shard, ddp, static_cast<int>(replicas));
}

/// Reports the bytes that this rank has sent in the last step, by kind of link, and their sum.
inline void report_links(Log& log, std::optional<int64_t> inside, const CommStream& shards,
                         std::optional<int64_t> across, const CommStream& replicas) {
  // log.traffic() overwrites extra["traffic"]. So each link's entry is copied, and the last call
  // writes the sum.
  const auto entry = [&](std::optional<int64_t> predicted, int64_t measured) {
    log.traffic(predicted, measured);
    return log.extra()["traffic"];
  };
  const int64_t sent_inside = log.sent_in_step(shards.group());
  const int64_t sent_across = log.sent_in_step(replicas.group());
  log.extra()["traffic_inside"] = entry(inside, sent_inside);
  log.extra()["traffic_across"] = entry(across, sent_across);
  log.traffic(inside && across ? std::optional(*inside + *across) : std::nullopt,
              sent_inside + sent_across);
}

}  // namespace ladder
