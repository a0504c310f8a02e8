// SharedFile: a file that several ranks write together. Its size and the place of each byte are
// known before the first write. So each rank writes its runs where they belong, and waits for no
// other.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/input_file.h"

namespace ladder {

class SharedFile {
 public:
  /// Creates the file in its full size, unless another rank has.
  /// @throws UserError if the disk refuses, as all functions here do
  SharedFile(const std::string& path, int64_t bytes);

  /// Writes a run of bytes; its first byte is byte `at` of the file.
  void write(int64_t at, std::span<const std::byte> run);
  /// Returns when all that was written here is on the disk.
  void sync();

  /// The XOR of what the runs written here add to the CRC-32C of the file.
  uint32_t runs_sum() const { return sum_; }

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  int64_t bytes_;
  Descriptor fd_;
  uint32_t sum_ = 0;
};

}  // namespace ladder
