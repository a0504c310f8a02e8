// What the picture of chapter 22 shows, as its own functions compute it.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/comm/run_ranks.h"
#include "tests/22_expert_parallel/small_exchange.h"

namespace ladder {

/// The smallest exchange, [rank]: "chosen" of its tokens; "arrived", the tokens that it has experts
/// for, of all eight; "rows" of each of its experts, by token. "sums" of those that arrived, where
/// expert e gives 10^e, so that the digits say whose outputs are in a sum; "joined", the same of
/// its own tokens.
inline nlohmann::json exchanged_tokens() {
  constexpr int64_t kRanks = SmallExchange::kRanks, T = SmallExchange::T, k = SmallExchange::k;
  const std::vector<std::vector<int32_t>> all_chosen{{0, 1, 0, 2, 2, 3, 1, 3},
                                                     {0, 1, 2, 3, 0, 3, 1, 2}};
  std::vector<nlohmann::json> ranks(kRanks);
  run_threads(kRanks, [&](Comm& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    const std::vector<int32_t>& chosen = all_chosen[rank];
    SmallExchange own(comm, chosen, static_cast<float>(comm.rank() * T));
    nlohmann::json& out = ranks[rank];
    for (int64_t t = 0; t < T; ++t) out["chosen"].push_back({chosen[t * k], chosen[t * k + 1]});
    const int32_t* begin = own.s.rows.offsets.data<int32_t>();
    float tens = rank == 0 ? 1 : 100;
    for (int64_t e = 0; e < SmallExchange::E / kRanks; ++e, tens *= 10) {
      std::vector<int64_t> tokens;
      for (int64_t row = begin[e]; row < begin[e + 1]; ++row) {
        tokens.push_back(static_cast<int64_t>(own.s.inp.data<float>()[row]));
        own.s.out.data<float>()[row] = tens;
      }
      out["rows"].push_back(tokens);
    }
    const float* joined = own.join().data<float>();
    for (int64_t t = 0; t < kRanks * T; ++t) {
      if (!own.came(t)) continue;
      out["arrived"].push_back(t);
      out["sums"].push_back(own.x.out.data<float>()[t]);
    }
    out["joined"] = std::vector<float>(joined, joined + T);
  });
  return ranks;
}

}  // namespace ladder
