// Who has how much work, and who sends how much, for an update of Muon. Two ways, as --report tells
// them: owners (owners.h), and none.
//
// Without owners every rank orthogonalizes each matrix of which its chunk has a slice. All ranks
// that do so get the slices of the others. Nothing comes back, but a matrix is computed as often as
// it is touched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/32_optimizers/owners.h"

namespace ladder {

/// Of each rank, in an update.
inline nlohmann::json ways(const ParamLayout& whole) {
  std::vector<ParamLayout> shards;
  for (int64_t r = 0; r < whole.shards(); ++r) shards.push_back(whole.shard(r));
  nlohmann::json owners, without;
  for (const ParamLayout& shard : shards) {
    const MuonPlan plan(shard);
    owners["flops"].push_back(plan.flops(shard.rank()));
    owners["sent"].push_back(plan.sent(shard.rank()));
    int64_t flops = 0, sent = 0;
    for (const MuonMatrix& matrix : plan.matrices) {
      const auto part = [&](const ParamLayout& s) { return s.find(matrix.name); };
      if (!part(shard)) continue;
      flops += matrix.flops();
      sent += (std::ranges::count_if(shards, part) - 1) * 4 *
              round_up(part(shard)->part.size(), kAlign);
    }
    without["flops"].push_back(flops);
    without["sent"].push_back(sent);
  }
  return {{"owners", owners}, {"without_owners", without}};
}

}  // namespace ladder
