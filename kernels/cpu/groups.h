// Walks over an array several vectors at a time. This suits long arithmetic, in which each
// operation waits for the one before: GELU and SwiGLU.
#pragma once

#include <type_traits>

#include "kernels/cpu/simd.h"
#include "kernels/tree.h"

namespace ladder {

/// How many vectors are computed side by side.
constexpr size_t kTogether = 6;

/// Calls f(i, io, std::integral_constant<size_t, N>) for N vectors from i on. N is kTogether or 1.
template <class Wide, class F>
HWY_INLINE void for_groups(Range range, F&& f) {
  constexpr auto kElements = static_cast<int64_t>(kTogether) * kLanes;
  int64_t i = range.begin;
  for (; i + kElements <= range.end; i += kElements)
    f(i, Wide{}, std::integral_constant<size_t, kTogether>{});
  for_vectors<Wide>(i, range.end,
                    [&](int64_t at, auto io) { f(at, io, std::integral_constant<size_t, 1>{}); });
}

/// Memory is asked for this many elements ahead. The arithmetic of a vector is so long that the
/// processor does not look that far by itself. It always goes into L1: L2 was no faster.
constexpr int64_t kAhead = 512;

}  // namespace ladder
