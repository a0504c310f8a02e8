// The merges of one piece. The merge of the lowest rank comes first; of equal ranks, the leftmost.
// There are two functions: one is fast for a few bytes, the other for a million bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace ladder {

/// What a pair of tokens becomes.
struct Found {
  uint32_t rank, result;
};
constexpr uint32_t kNoRank = UINT32_MAX;  ///< the rank of a pair that is never merged

/// Merges `ids`, the bytes of a piece, to its tokens. Each merge looks at all pairs, so that n
/// bytes take O(n^2).
/// @param merges has find(left, right), a Found
template <class Merges>
void merge_short(const Merges& merges, std::vector<uint32_t>& ids) {
  std::vector<Found> found(ids.size());  // of each token and the next one
  for (size_t i = 0; i + 1 < ids.size(); ++i) found[i] = merges.find(ids[i], ids[i + 1]);
  while (ids.size() > 1) {
    const auto end = found.begin() + static_cast<int64_t>(ids.size()) - 1;
    const auto best = std::min_element(
        found.begin(), end, [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) return;
    const int64_t i = best - found.begin();
    ids[static_cast<size_t>(i)] = best->result;
    ids.erase(ids.begin() + i + 1);
    found.erase(found.begin() + i + 1);
    const auto at = static_cast<size_t>(i);
    if (at > 0) found[at - 1] = merges.find(ids[at - 1], ids[at]);
    found[at] = at + 1 < ids.size() ? merges.find(ids[at], ids[at + 1]) : Found{kNoRank, 0};
  }
}

/// The same as merge_short(), in O(n log n).
template <class Merges>
void merge_long(const Merges& merges, std::vector<uint32_t>& ids) {
  constexpr uint32_t kEmpty = UINT32_MAX;  // a place whose token has become part of the one before
  const auto n = static_cast<uint32_t>(ids.size());
  std::vector<uint32_t> next(n), before(n);  // places that are not empty
  // Places whose token can merge with the next token, by the rank of that merge, then by place.
  // Later merges may change a place that waits, so each place is looked up again when its turn
  // comes.
  using Turn = std::pair<uint32_t, uint32_t>;  // a rank and a place
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> waiting;
  const auto found_at = [&](uint32_t i) {
    return ids[i] != kEmpty && next[i] < n ? merges.find(ids[i], ids[next[i]]) : Found{kNoRank, 0};
  };
  const auto wait = [&](uint32_t i) {
    if (const uint32_t rank = found_at(i).rank; rank != kNoRank) waiting.emplace(rank, i);
  };
  for (uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    before[i] = i - 1;
    wait(i);
  }
  while (!waiting.empty()) {
    const auto [rank, i] = waiting.top();
    waiting.pop();
    const Found found = found_at(i);
    if (found.rank != rank) continue;
    ids[i] = found.result;
    ids[next[i]] = kEmpty;
    next[i] = next[next[i]];
    if (next[i] < n) before[next[i]] = i;
    wait(i);
    if (i > 0) wait(before[i]);
  }
  std::erase(ids, kEmpty);
}

}  // namespace ladder
