// SharedFile: a file that several ranks write together. Its size and the place of each byte are
// known before the first write. So each rank writes its runs where they belong, and waits for no
// other.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/input_file.h"

namespace ladder {

/// What is known of runs of a file, in 96 bits. Those of several ranks are put together.
struct RunsSum {
  uint32_t crc = 0;    ///< the XOR of what the runs add to the CRC-32C of the file
  uint64_t cover = 0;  ///< the sum of their cover_of()

  RunsSum& operator+=(const RunsSum& other) {
    crc ^= other.crc;
    cover += other.cover;
    return *this;
  }
};

/// random(begin) - random(end), for a random function of places in a file. In the sum over runs a
/// place drops out if as many runs end there as begin. So the sum is cover_of(0, size) only if runs
/// cover each byte of a file once: a checksum does not see that a run of zeros is missing.
uint64_t cover_of(int64_t begin, int64_t end);

class SharedFile {
 public:
  /// Creates the file in its full size, unless another rank has.
  /// @throws UserError if the disk refuses, as all functions here do
  SharedFile(const std::string& path, int64_t bytes);

  /// Writes a run of bytes; its first byte is byte `at` of the file.
  void write(int64_t at, std::span<const std::byte> run);
  /// Returns when all that was written here is on the disk.
  void sync();

  /// Of the runs written here.
  RunsSum sum() const { return sum_; }

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  int64_t bytes_;
  Descriptor fd_;
  RunsSum sum_;
};

}  // namespace ladder
