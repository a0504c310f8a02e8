#include "tests/common/pairwise.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace ladder::test {
namespace {

/// Draws that no library decides, so that they are the same everywhere.
class Draw {
 public:
  size_t below(size_t n) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX
    return static_cast<size_t>((state_ >> 33) % n);
  }

 private:
  uint64_t state_ = 1;
};

/// Appends those of `row`'s tuples with `left` more factors, from factor `first` on.
void tuples_of(const Row& row, size_t first, size_t left, Row& tuple, std::vector<Row>& all) {
  if (left == 0) {
    all.push_back(tuple);
    return;
  }
  for (size_t i = first; i < row.size(); ++i) {
    if (row[i] == kOpen) continue;
    tuple[i] = row[i];
    tuples_of(row, i + 1, left - 1, tuple, all);
    tuple[i] = kOpen;
  }
}

class Cover {
 public:
  Cover(const std::vector<Factor>& factors, size_t strength,
        const std::function<bool(const Row&)>& is_legal)
      : factors_(factors), strength_(std::min(strength, factors.size())), is_legal_(is_legal) {
    Row tuple(factors.size(), kOpen);
    list(0, strength_, tuple);
  }

  std::vector<Row> rows() {
    std::vector<Row> chosen;
    while (!missing_.empty()) {
      const Row first = *missing_.begin();
      std::optional<Row> best;
      size_t most = 0;
      for (int candidate = 0; candidate < kCandidates; ++candidate) {
        Row row = first;
        if (!is_legal_(row) || !complete(row)) break;
        const size_t news = new_tuples(row);
        if (!best || news > most) best = row;
        most = std::max(most, news);
      }
      missing_.erase(first);  // if it is in no legal row
      if (!best) continue;
      for (const Row& tuple : tuples(*best)) missing_.erase(tuple);
      chosen.push_back(*best);
    }
    return chosen;
  }

 private:
  static constexpr int kCandidates = 20;

  /// All tuples of `left` more factors, from factor `first` on.
  void list(size_t first, size_t left, Row& tuple) {
    if (left == 0) {
      missing_.insert(tuple);
      return;
    }
    for (size_t i = first; i + left <= factors_.size(); ++i) {
      for (tuple[i] = 0; tuple[i] < factors_[i].size(); ++tuple[i]) list(i + 1, left - 1, tuple);
      tuple[i] = kOpen;
    }
  }

  std::vector<Row> tuples(const Row& row) const {
    std::vector<Row> all;
    Row tuple(row.size(), kOpen);
    tuples_of(row, 0, strength_, tuple, all);
    return all;
  }

  size_t new_tuples(const Row& row) const {
    const std::vector<Row> all = tuples(row);
    return static_cast<size_t>(
        std::ranges::count_if(all, [&](const Row& tuple) { return missing_.contains(tuple); }));
  }

  /// Chooses the open factors, one drawn after another, each as the value with the most new tuples
  /// that leaves something legal. False if nothing is.
  bool complete(Row& row) {
    std::vector<size_t> open;
    for (size_t i = 0; i < row.size(); ++i)
      if (row[i] == kOpen) open.push_back(i);
    if (open.empty()) return true;
    const size_t factor = open[draw_.below(open.size())], values = factors_[factor].size();
    std::vector<std::pair<size_t, size_t>> news;  // and the value
    for (size_t i = 0, begin = draw_.below(values); i < values; ++i) {
      row[factor] = (begin + i) % values;
      if (is_legal_(row)) news.emplace_back(new_tuples(row), row[factor]);
    }
    std::ranges::stable_sort(news, std::greater<>{}, &std::pair<size_t, size_t>::first);
    for (const auto& [count, value] : news) {
      row[factor] = value;
      if (complete(row)) return true;
    }
    row[factor] = kOpen;
    return false;
  }

  const std::vector<Factor>& factors_;
  size_t strength_;
  const std::function<bool(const Row&)>& is_legal_;
  std::set<Row> missing_;
  Draw draw_;
};

}  // namespace

std::vector<Row> covering(const std::vector<Factor>& factors, size_t strength,
                          const std::function<bool(const Row&)>& is_legal) {
  return Cover(factors, strength, is_legal).rows();
}

}  // namespace ladder::test
