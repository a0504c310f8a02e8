// InputFile: a regular file, read part by part, that must not change meanwhile.
//
// Not mapped into memory: where a mapped file shrinks, or its disk fails, the process gets SIGBUS
// and dies without a word. A read says what went wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ladder {

/// A file descriptor that closes itself.
struct CloseDescriptor {
  void operator()(const int* fd) const;
};
using Descriptor = std::unique_ptr<const int, CloseDescriptor>;

class InputFile {
 public:
  /// @param flag that names the file, for messages: "--data"
  /// @throws UserError naming the file if it cannot be opened, or is a pipe, a device, a directory:
  ///         what may never come to an end
  explicit InputFile(const std::string& path, std::string_view flag = "");

  const std::string& path() const { return path_; }
  /// For messages: "--data train.bin".
  const std::string& name() const { return name_; }
  /// Bytes, when it was opened.
  int64_t size() const { return size_; }

  /// out = bytes [begin, begin + out.size()), all of which were there when it was opened. Any
  /// number of threads may read at a time.
  /// @throws UserError naming the file if it has been written to since, or the disk fails
  void read(int64_t begin, std::span<std::byte> out) const;

 private:
  [[noreturn]] void fail(int error) const;
  void check_unchanged() const;

  std::string path_, name_;
  Descriptor fd_;
  int64_t size_ = 0;
  timespec written_{};  ///< when it last was, as it was opened
};

/// The whole of a small file. @throws UserError as InputFile, and if it has more bytes than `most`
std::string read_small_file(const std::string& path, int64_t most, std::string_view flag = "");

/// The names in a directory, sorted. None if it cannot be read: whoever needs one of them misses
/// it.
std::vector<std::string> names_in(const std::string& directory);

}  // namespace ladder
