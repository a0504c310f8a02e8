// Choices of experts, as a router would give them, for checks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "common/random.h"
#include "kernels/tensor.h"

namespace ladder::lab {

/// Sequences, their tokens, experts, and how many of these a token takes.
struct ChoiceSizes {
  int64_t B, T, E, k;
};

/// expert (B,T,k) I32 = different experts of E for each token, ascending. Low numbers come more
/// often.
inline void draw_choices(const Random& random, const Tensor& expert, int64_t E) {
  const auto k = static_cast<size_t>(expert.dim(2));
  for (int64_t token = 0; token < expert.dim(0) * expert.dim(1); ++token) {
    std::vector<int32_t> all(static_cast<size_t>(E));
    std::iota(all.begin(), all.end(), 0);
    for (size_t j = 0; j < k; ++j) {
      const uint64_t left = all.size() - j, at = static_cast<uint64_t>(token);
      std::swap(all[j],
                all[j + std::min(random.below(left, at, j), random.below(left, at, 99 + j))]);
    }
    std::sort(all.begin(), all.begin() + expert.dim(2));
    std::copy_n(all.begin(), k, expert.data<int32_t>() + token * expert.dim(2));
  }
}

/// The first n numbers of a tensor, I32.
inline std::vector<float> integers(const Tensor& x, int64_t n) {
  return {x.data<int32_t>(), x.data<int32_t>() + n};
}

}  // namespace ladder::lab
