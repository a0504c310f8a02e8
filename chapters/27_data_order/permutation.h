// A shuffle without memory: a permutation of 0 ... n - 1 that a key chooses. It gives the number at
// any place at once.
//
// A list of a billion shuffled numbers takes 8 GB, and a run that goes on must make all of it again
// to read one place. A cipher is a permutation that needs no list. A Feistel network (Luby and
// Rackoff, SIAM J. Comput. 17, 1988) makes one of any function F that mixes bits:
//
//   (left, right)  ->  (right, left xor F(right))        one round; F need not be invertible
//
// A round can be undone, so no two numbers meet. It permutes 0 ... 4^k - 1, where each half has k
// bits. For another n there is cycle walking (Black and Rogaway, CT-RSA 2002): a result that is not
// below n goes through the network again. With the least k that fits, more than a quarter of the
// 4^k numbers are below n, so the mean walk has fewer than 4 passes.
#pragma once

#include <bit>
#include <cstdint>

#include <fmt/format.h>

#include "common/random.h"

namespace ladder {

class Permutation {
 public:
  /// The order of epoch `epoch` of source `source`, which has n documents, n at least 1.
  Permutation(uint64_t seed, int64_t source, int64_t epoch, int64_t n)
      : random_(seed, fmt::format("order of source {}, epoch {}", source, epoch)),
        n_(static_cast<uint64_t>(n)),
        half_((std::bit_width(n_ - 1) + 1) / 2),
        mask_((uint64_t{1} << half_) - 1) {}

  /// The document that comes at place i, 0 to n - 1.
  int64_t at(int64_t i) const {
    auto x = static_cast<uint64_t>(i);
    do x = feistel(x);
    while (x >= n_);
    return static_cast<int64_t>(x);
  }

 private:
  static constexpr uint64_t kRounds = 6;

  /// Six rounds: a permutation of 0 ... 4^k - 1.
  uint64_t feistel(uint64_t x) const {
    uint64_t left = x >> half_, right = x & mask_;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (random_.bits(right, round)[0] & mask_);
      left = right;
      right = mixed;
    }
    return left << half_ | right;
  }

  Random random_;
  uint64_t n_;
  int half_;       ///< k, bits of a half
  uint64_t mask_;  ///< 2^k - 1
};

}  // namespace ladder
