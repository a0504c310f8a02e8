#include "tests/common/pairwise.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ladder::test {
namespace {

/// Two factors and a value of each.
using Pair = std::pair<std::pair<size_t, size_t>, std::pair<size_t, size_t>>;

std::vector<Pair> pairs_of(const Row& row) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < row.size(); ++i)
    for (size_t j = i + 1; j < row.size(); ++j) pairs.push_back({{i, j}, {row[i], row[j]}});
  return pairs;
}

std::vector<Row> all_rows(const std::vector<Factor>& factors) {
  std::vector<Row> rows = {{}};
  for (const Factor& factor : factors) {
    std::vector<Row> longer;
    for (const Row& row : rows)
      for (size_t value = 0; value < factor.size(); ++value) {
        longer.push_back(row);
        longer.back().push_back(value);
      }
    rows = std::move(longer);
  }
  return rows;
}

}  // namespace

std::vector<Row> pairwise(const std::vector<Factor>& factors,
                          const std::function<bool(const Row&)>& is_legal) {
  std::vector<Row> rows = all_rows(factors);
  std::reverse(rows.begin(), rows.end());
  std::erase_if(rows, [&](const Row& row) { return !is_legal(row); });
  std::set<Pair> missing;
  for (const Row& row : rows)
    for (const Pair& pair : pairs_of(row)) missing.insert(pair);
  const auto new_pairs = [&](const Row& row) {
    const std::vector<Pair> pairs = pairs_of(row);
    return std::count_if(pairs.begin(), pairs.end(),
                         [&](const Pair& pair) { return missing.contains(pair); });
  };
  std::vector<Row> chosen;
  while (!missing.empty()) {
    std::vector<int64_t> news;
    for (const Row& row : rows) news.push_back(new_pairs(row));
    chosen.push_back(
        rows[static_cast<size_t>(std::max_element(news.begin(), news.end()) - news.begin())]);
    for (const Pair& pair : pairs_of(chosen.back())) missing.erase(pair);
  }
  return chosen;
}

std::string flags_of(const std::vector<Factor>& factors, const Row& row) {
  std::string flags;
  for (size_t i = 0; i < factors.size(); ++i) flags += factors[i][row[i]] + " ";
  return flags;
}

}  // namespace ladder::test
