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
  /// Whether all chunks have the same size. Only then the first one is an n-th of all elements.
  bool even() const { return (*this)[0].size() * count == elements; }
};

/// The same elements, in one dimension.
inline Tensor flat(const Tensor& data) { return data.view({data.size()}); }

}  // namespace ladder
