// Files that Zstandard has compressed. In a build without its library zstd_none.cpp refuses them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/input_file.h"

namespace ladder {

/// The bytes of a file from its first to its last.
class ByteSource {
 public:
  ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  virtual ~ByteSource() = default;

  /// Puts the next bytes into `out`, which has room for at least one.
  /// @return how many bytes these are; 0: there are no more
  /// @throws UserError naming the file
  virtual size_t read(std::span<std::byte> out) = 0;
};

/// The bytes to which a compressed file expands. `file` must outlive the result.
/// @throws UserError in a build without Zstandard
std::unique_ptr<ByteSource> zstd_source(const InputFile& file);

/// Compresses `bytes` to one frame, as Zstandard calls it. A file of several frames expands to all
/// of them.
/// @throws UserError in a build without Zstandard
std::string zstd_frame(std::string_view bytes);

inline bool is_zstd(std::string_view path) { return path.ends_with(".zst"); }

}  // namespace ladder
