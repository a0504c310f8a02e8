// Documents in rows, and the order in which sources are dealt, for the pictures of chapters 26
// and 27.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/26_packing/plan.h"
#include "chapters/27_data_order/dealing.h"
#include "chapters/27_data_order/permutation.h"

namespace ladder {

/// Three words, each with its end, in rows of six.
inline nlohmann::json packing() {
  const RowPlan rows = plan_rows(std::vector<int64_t>{3, 5, 2}, 6, 6, Pack::Ffd);
  return {{"words", {"cat", "house", "it"}}, {"T", 6}, {"rows", rows}};
}

/// An epoch of two sources, in windows of at most eight documents: in which order they are dealt,
/// and which of them lie in each row.
inline nlohmann::json dealt_epoch() {
  constexpr int64_t T = 8, kWindow = 8, kDocuments = 12;
  const std::vector<int64_t> weights{3, 1};
  const std::vector<std::vector<int64_t>> lengths{{5, 3, 6, 2, 4, 7, 3, 2, 5}, {8, 4, 6}};
  nlohmann::json all{
      {"weights", weights}, {"lengths", lengths}, {"dealt", nlohmann::json::array()}};
  all["windows"] = nlohmann::json::array();
  std::vector<int64_t> counts(2);
  int64_t dealt = 0;
  while (dealt < kDocuments) {
    std::vector<int64_t> of_window;
    nlohmann::json names = nlohmann::json::array(), rows = nlohmann::json::array();
    while (std::ssize(of_window) < kWindow && dealt < kDocuments) {
      const size_t s = next_source(weights, counts);
      const Permutation order(/*seed=*/1, static_cast<int64_t>(s), 0, std::ssize(lengths[s]));
      const int64_t document = order.at(counts[s]++);
      ++dealt;
      names.push_back({s, document});
      of_window.push_back(lengths[s][static_cast<size_t>(document)]);
    }
    for (const auto& row : plan_rows(of_window, T, T, Pack::Ffd)) {
      rows.emplace_back(nlohmann::json::array());
      for (const int64_t i : row) rows.back().push_back(names[static_cast<size_t>(i)]);
    }
    all["dealt"].push_back(names);
    all["windows"].push_back(rows);
  }
  return all;
}

}  // namespace ladder
