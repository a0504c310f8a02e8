// Who has how much work, and who sends how much, for an update of Muon. Two ways, as --report tells
// them: owners (owners.h), and none.
//
// Without owners every rank orthogonalises each matrix of which its chunk has a slice. All ranks
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
inline nlohmann::json owners_work(const ParamLayout& whole) {
  std::vector<int64_t> flops, sent;
  for (int64_t r = 0; r < whole.shards(); ++r) {
    const MuonPlan plan(whole.shard(r));
    flops.push_back(plan.flops(r));
    sent.push_back(plan.sent(r));
  }
  return {{"flops", flops}, {"sent", sent}};
}

inline nlohmann::json work_without_owners(const ParamLayout& whole) {
  const auto ranks = static_cast<size_t>(whole.shards());
  std::vector<ParamLayout> shards;
  for (int64_t r = 0; r < whole.shards(); ++r) shards.push_back(whole.shard(r));
  std::vector<int64_t> flops(ranks), sent(ranks);
  for (const MuonMatrix& matrix : owned_matrices(whole)) {
    const auto others =
        std::ranges::count_if(
            shards, [&](const ParamLayout& s) { return s.find(matrix.name) != nullptr; }) -
        1;
    for (size_t r = 0; r < ranks; ++r)
      if (const ParamSpec* spec = shards[r].find(matrix.name)) {
        flops[r] += matrix.flops();
        sent[r] += others * 4 * round_up(spec->part.size(), kAlign);
      }
  }
  return {{"flops", flops}, {"sent", sent}};
}

}  // namespace ladder
