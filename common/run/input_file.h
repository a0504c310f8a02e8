// InputFile: a regular file, read part by part.
//
// Not mapped into memory: where a mapped file shrinks, or its disk fails, the process gets SIGBUS
// and dies without a word. A read says what went wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace ladder {

class InputFile {
 public:
  /// @throws UserError naming the file if it cannot be opened, or is a pipe, a device, a directory
  explicit InputFile(const std::string& path);

  const std::string& path() const { return path_; }
  /// Bytes, when it was opened.
  int64_t size() const { return size_; }

  /// out = bytes [begin, begin + out.size()), all of which were there when it was opened. Any
  /// number of threads may read at a time.
  /// @throws UserError naming the file if it has become shorter, or the disk fails
  void read(int64_t begin, std::span<std::byte> out) const;

 private:
  struct Close {
    void operator()(const int* fd) const;
  };

  std::string path_;
  std::unique_ptr<const int, Close> fd_;
  int64_t size_ = 0;
};

/// The whole of a small file. @throws UserError as InputFile, and if it has more bytes than `most`
std::string read_small_file(const std::string& path, int64_t most);

}  // namespace ladder
