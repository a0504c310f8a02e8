// Counter-based random numbers. A number depends only on (seed, name, index). So any rank can draw
// any element in any order, and all layouts draw the same numbers.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ladder {

/// FNV-1a with 64 bits: a short hash that is the same on every machine.
constexpr uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

/// The stream of numbers called `name` of a seed. It is Philox4x32-10 (Salmon et al., SC 2011),
/// keyed by hash(name) xor seed. The index is the counter.
class Random {
 public:
  Random(uint64_t seed, std::string_view name) : key_(hash_name(name) ^ seed) {}

  /// Two independent 64-bit words at index (i, j).
  std::array<uint64_t, 2> bits(uint64_t i, uint64_t j = 0) const;

  /// Integer in [0, n). Small ones are likelier, by a share of at most n / 2^64.
  uint64_t below(uint64_t n, uint64_t i, uint64_t j = 0) const { return bits(i, j)[0] % n; }

  /// A real number in [0, 1), a multiple of 2^-53.
  double uniform(uint64_t i, uint64_t j = 0) const { return unit(bits(i, j)[0]); }

  /// Standard normal numbers 2 i and 2 i + 1 (Box and Muller).
  std::array<double, 2> normal_pair(uint64_t i) const;

 private:
  static constexpr double unit(uint64_t x) { return static_cast<double>(x >> 11) * 0x1p-53; }

  uint64_t key_;
};

}  // namespace ladder
