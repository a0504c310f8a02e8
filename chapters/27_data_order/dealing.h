// Which source the next document comes from. Sources have integer weights, and at every moment of
// the run each source is within one document of its share.
//
// Let w be a source's weight and W the sum of all weights. Of the first t documents, t w / W should
// be of the source; c, a whole number, are. Its next document, number c + 1, has two times:
//
//   behind   t w > W c             from the first such t on, it is not too early
//   due      ceil((c + 1) W / w)   the last t at which it is not too late
//
// Of the sources that are behind, take the one that is due first: earliest deadline first. Then no
// document is ever late (Tijdeman, "The chairman assignment problem", Discrete Math. 32, 1980), so
// |c - t w / W| < 1 at every t. It looks natural to take the source with the largest t w / W - c,
// but with weights 1, 1, 1, 11, 11 that breaks the bound.
//
// Drawing a source at random keeps the weights only in the mean: after t documents its count is off
// by some sqrt(t w / W).
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "common/error.h"
#include "kernels/check.h"

namespace ladder {

class Dealing {
 public:
  /// The largest sum of weights W, so that t w and W c fit into 64 bits.
  static constexpr int64_t kMaxWeights = int64_t{1} << 20;

  /// @param weights at least 1 each. @throws UserError if their sum is over kMaxWeights
  explicit Dealing(std::vector<int64_t> weights)
      : weights_(std::move(weights)),
        counts_(weights_.size()),
        W_(std::accumulate(weights_.begin(), weights_.end(), int64_t{0})) {
    if (W_ > kMaxWeights)
      throw UserError("the weights of --sources sum to {}; legal are at most {}", W_, kMaxWeights);
  }

  /// The source of the next document. count() counts it.
  size_t next() const {
    const int64_t t = dealt() + 1;
    size_t first = weights_.size();
    int64_t first_due = 0;
    for (size_t s = 0; s < weights_.size(); ++s) {
      const int64_t w = weights_[s], c = counts_[s];
      if (t * w <= W_ * c) continue;  // not behind
      const int64_t due = ceil_div((c + 1) * W_, w);
      if (first < weights_.size() && due >= first_due) continue;
      first = s;
      first_due = due;
    }
    CHECK(first < weights_.size(), "no source is behind at sample {}", t);
    return first;
  }
  void count(size_t source) { ++counts_[source]; }

  /// How many documents of each source were dealt.
  std::span<const int64_t> counts() const { return counts_; }
  void set_counts(std::span<const int64_t> counts) {
    CHECK(counts.size() == counts_.size(), "{} counts of {} sources", counts.size(),
          counts_.size());
    counts_.assign(counts.begin(), counts.end());
  }
  int64_t dealt() const { return std::accumulate(counts_.begin(), counts_.end(), int64_t{0}); }

 private:
  std::vector<int64_t> weights_;  ///< w
  std::vector<int64_t> counts_;   ///< c
  int64_t W_;                     ///< sum of weights
};

}  // namespace ladder
