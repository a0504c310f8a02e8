// Which thread of a block runs next.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "kernels/cuda/on_cpu/block.h"
#include "kernels/cuda/on_cpu/random.h"

namespace ladder::on_cpu {

/// The threads that may run. In half of all blocks, any of them may be next. In the other half
/// warps run one after the other, each as far as it can.
class Schedule {
 public:
  explicit Schedule(int threads)
      : rank_(static_cast<size_t>(ceil_div(threads, kLanes))), ready_(rank_.size()) {}

  /// Called before each block. Draws an order of warps. No thread is ready yet.
  void begin(Random& random) {
    std::fill(rank_.begin(), rank_.end(), 0);
    if (random.below(2) == 0) return;
    std::iota(rank_.begin(), rank_.end(), 0);
    for (size_t i = rank_.size(); i > 1; --i) std::swap(rank_[i - 1], rank_[random.below(i)]);
  }

  void add(int thread) {
    const size_t rank = rank_[static_cast<size_t>(thread / kLanes)];
    ready_[rank].push_back(thread);
    some_ |= uint32_t{1} << rank;
  }

  bool empty() const { return some_ == 0; }

  /// Removes and returns one thread: any thread of the largest rank.
  int draw(Random& random) {
    const int rank = std::bit_width(some_) - 1;
    std::vector<int>& ready = ready_[static_cast<size_t>(rank)];
    std::swap(ready[random.below(ready.size())], ready.back());
    const int next = ready.back();
    ready.pop_back();
    if (ready.empty()) some_ &= ~(uint32_t{1} << rank);
    return next;
  }

 private:
  std::vector<size_t> rank_;             // each warp's place in the order; the largest runs first
  std::vector<std::vector<int>> ready_;  // threads of each rank
  uint32_t some_ = 0;                    // bit r: a thread of rank r is ready; at most 32 warps
};

}  // namespace ladder::on_cpu
