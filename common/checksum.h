// Checksum: XXH3 with 64 bits, computed piece by piece. And hashes of a text at once.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace ladder {

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
