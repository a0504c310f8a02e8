// Chunks: how ranks divide a flat buffer.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/check.h"
#include "kernels/tensor.h"
#include "kernels/tree.h"

namespace ladder {

/// Chunk i is [floor(i K / n), floor((i + 1) K / n)) of K units. A unit is `align` elements; the
/// last unit may be shorter. So chunks differ by at most one unit, and may be empty.
struct Chunks {
  int64_t elements;
  int64_t count;      ///< n: how many ranks
  int64_t align = 1;  ///< kAlign for shards: tensors start at multiples of it

  Range operator[](int64_t i) const {
    const Range units = leaf(i, count, ceil_div(elements, align));
    return {std::min(elements, units.begin * align), std::min(elements, units.end * align)};
  }
  /// Chunk i of a flat tensor with `elements` elements.
  Tensor of(const Tensor& data, int64_t i) const {
    const Range range = (*this)[i];
    return data.slice(range.begin, range.size());
  }
  /// How many elements the largest chunk has.
  int64_t largest() const {
    int64_t most = 0;
    for (int64_t i = 0; i < count; ++i) most = std::max(most, (*this)[i].size());
    return most;
  }
  /// Whether all chunks have the same size.
  bool even() const { return largest() * count == elements; }
  bool operator==(const Chunks&) const = default;
};

/// The same elements, in one dimension.
inline Tensor flat(const Tensor& data) { return data.view({data.size()}); }

}  // namespace ladder
