// InputFile: a regular file that is read part by part and must not change meanwhile.
//
// It is not mapped into memory: if a mapped file shrinks, or its disk fails, the process gets
// SIGBUS and dies without a message. A read reports what went wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
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
/// The same for a stream.
struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FilePointer = std::unique_ptr<std::FILE, CloseFile>;

class InputFile {
 public:
  /// @param flag the flag that gave the path, for messages: "--data"
  /// @throws UserError naming the file if it cannot be opened, or is a pipe, a device or a
  /// directory: it might have no end
  explicit InputFile(const std::string& path, std::string_view flag = "");
  /// Bytes in memory, which must outlive it, under the name of the file that they were made from.
  InputFile(const std::string& path, std::string_view flag, std::span<const std::byte> bytes);

  const std::string& path() const { return path_; }
  /// The name for messages: "--data train.bin".
  const std::string& name() const { return name_; }
  /// How many bytes it had when it was opened.
  int64_t size() const { return size_; }

  /// out = bytes [begin, begin + out.size()). The file had all of them when it was opened. Several
  /// threads may read at the same time.
  /// @throws UserError naming the file if it was written to since it was opened, or if the disk
  /// fails
  void read(int64_t begin, std::span<std::byte> out) const;

 private:
  [[noreturn]] void fail(int error) const;
  void check_unchanged() const;

  std::string path_, name_;
  Descriptor fd_;  ///< null: the bytes are in memory
  std::span<const std::byte> memory_;
  int64_t size_ = 0;
  timespec written_{};  ///< when it was last written to, as of opening it
};

/// Reads a whole small file. @throws UserError as InputFile does, and for more than `most` bytes
std::string read_small_file(const std::string& path, int64_t most, std::string_view flag = "");

/// The names in a directory, sorted. If the directory cannot be read, there are none; a caller that
/// needs one of them will miss it.
std::vector<std::string> names_in(const std::string& directory);

}  // namespace ladder
