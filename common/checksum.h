// Checksums. XXH3 with 64 bits is computed piece by piece, in order. CRC-32C can be put together
// from runs that several ranks have: it is linear. And hashes of a text at once.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace ladder {

/// XXH3.
class Checksum {
 public:
  Checksum();
  void update(std::span<const std::byte> bytes);
  /// 16 hexadecimal digits.
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

/// What a run of bytes adds to the CRC-32C of a file in which `behind` bytes follow the run.
///
/// The CRC of a file without its initial value is the remainder of a polynomial over GF(2): the XOR
/// of what its runs add, in any order. A run of zeros adds 0, so holes need not be known.
uint32_t crc32c_of_range(std::span<const std::byte> run, int64_t behind);
/// The CRC-32C of a file, with its initial value and its last inversion.
/// @param runs the XOR over all its runs
uint32_t crc32c_of_file(uint32_t runs, int64_t bytes);

/// XXH64 with seed 0.
uint64_t hash64(std::string_view bytes);

/// A number of 128 bits.
struct Hash128 {
  uint64_t high = 0, low = 0;

  auto operator<=>(const Hash128&) const = default;
  /// 32 hexadecimal digits.
  std::string hex() const;
};
/// XXH3 with 128 bits.
Hash128 hash128(std::string_view bytes, uint64_t seed = 0);

}  // namespace ladder
