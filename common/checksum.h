// Checksum: XXH3 with 64 bits, computed piece by piece.
#pragma once

#include <memory>
#include <span>
#include <string>

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

}  // namespace ladder
