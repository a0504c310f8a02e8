// What the pictures of chapter 20 show, as its own functions compute it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/20_context_parallel/arrival_tree.h"
#include "chapters/20_context_parallel/context.h"

namespace ladder {

/// A sequence of 16 tokens on four ranks, in both orders. "owners": of each token. "pairs": of a
/// query and a key, by rank. "leaves": of each token, where a sum over tokens has eight.
inline nlohmann::json token_orders() {
  constexpr int64_t T = 16, kRanks = 4;
  nlohmann::json out;
  for (const TokenOrder order : {TokenOrder::Zigzag, TokenOrder::Contiguous}) {
    std::vector<int64_t> owners(T), pairs;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      const OwnTokens own{T, kRanks, rank, order};
      for (const int i : {0, 1})
        for (int64_t t = own.tokens(i).begin; t < own.tokens(i).end; ++t)
          owners[static_cast<size_t>(t)] = rank;
      pairs.push_back(own.pairs({0, T}));
    }
    out[to_string(order)] = {{"owners", owners}, {"pairs", pairs}};
  }
  for (int64_t t = 0; t < T; ++t) out["leaves"].push_back(leaf_of_token(t, /*n=*/8, T));
  return out;
}

/// A ring of four ranks, [step][rank]. "keys": the runs whose keys a rank has. "waiting": what
/// waits in its tree of softmaxes after it has worked with them.
inline nlohmann::json ring_of_keys() {
  constexpr int64_t kRanks = 4;
  std::vector<nlohmann::json> steps(kRanks);
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const OwnTokens own{2 * kRanks, kRanks, rank, TokenOrder::Zigzag};
    std::vector<std::string> sums(kRanks + 1);  // by buffer
    ArrivalTree tree(2 * kRanks, std::ssize(sums));
    for (int64_t step = 0; step < kRanks; ++step) {
      const auto runs = own.runs_of((rank - step + kRanks) % kRanks);
      for (const int64_t run : runs) {
        const size_t at = tree.take();
        sums[at] = std::to_string(run);
        tree.add(run, at, [&](size_t to, size_t from) {
          sums[to] = "(" + sums[to] + "+" + std::exchange(sums[from], "") + ")";
        });
      }
      nlohmann::json waiting = nlohmann::json::array();
      for (const std::string& sum : sums)
        if (!sum.empty()) waiting.push_back(sum);
      steps[static_cast<size_t>(step)].push_back({{"keys", runs}, {"waiting", waiting}});
    }
  }
  return steps;
}

}  // namespace ladder
