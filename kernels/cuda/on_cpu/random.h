// Draws the order of threads and blocks.
#pragma once

#include <cstdint>
#include <numeric>

namespace ladder::on_cpu {

/// SplitMix64: every seed and every step of it gives a different, well mixed number.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u) {}
  /// A number in [0, n).
  uint64_t below(uint64_t n) {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % n;
  }

 private:
  uint64_t state_;
};

/// A step that visits all of n blocks in turn, from any start.
inline int64_t random_step(Random& random, int64_t n) {
  int64_t step = 1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(n)));
  while (std::gcd(step, n) != 1) ++step;
  return step;
}

}  // namespace ladder::on_cpu
