// Which source the next document comes from. Sources have integer weights, and at every moment of
// the run each source is within one document of its share.
//
// Let w be a source's weight and W the sum of all weights. Of the first t documents, t w / W should
// be of the source. When document t is next, c documents of the source are among the t - 1 dealt so
// far. Two times say when the source gets its next one, number c + 1:
//
//   behind   t w > W c             from the first such t on, it may get document t
//   due      ceil((c + 1) W / w)   the last t at which it must get it
//
// Of the sources that are behind, take the one that is due first: earliest deadline first. Then no
// document is ever late (Tijdeman, "The chairman assignment problem", Discrete Math. 32, 1980). So
// |c' - t w / W| < 1 at every t, where c' is the count after document t. It looks natural to take
// the source with the largest t w / W - c. With weights 1, 1, 1, 11, 11 that breaks the bound, if
// ties go to the first.
//
// Drawing a source at random keeps the weights only in the mean: after t documents its count is off
// by some sqrt(t w / W).
#pragma once

#include <cstdint>
#include <numeric>
#include <span>

#include "kernels/check.h"

namespace ladder {

/// The largest sum of weights W, so that t w and W c fit into 64 bits.
constexpr int64_t kMaxWeights = int64_t{1} << 20;

/// The source of the next document.
/// @param weights w of each source, at least 1; at most kMaxWeights together
/// @param counts c, how many documents of each source have been dealt
inline size_t next_source(std::span<const int64_t> weights, std::span<const int64_t> counts) {
  const int64_t W = std::accumulate(weights.begin(), weights.end(), int64_t{0}),
                t = std::accumulate(counts.begin(), counts.end(), int64_t{1});
  size_t first = weights.size();
  int64_t first_due = 0;
  for (size_t s = 0; s < weights.size(); ++s) {
    const int64_t w = weights[s], c = counts[s];
    if (t * w <= W * c) continue;  // not behind
    const int64_t due = ceil_div((c + 1) * W, w);
    if (first < weights.size() && due >= first_due) continue;
    first = s;
    first_due = due;
  }
  CHECK(first < weights.size(), "no source is behind at document {}", t);
  return first;
}

}  // namespace ladder
