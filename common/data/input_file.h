// InputFile: a regular file, read where and when it is needed, that must not change meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>

namespace ladder {

class InputFile {
 public:
  /// @param flag for messages: "--data"
  /// @throws UserError if there is none, if it cannot be read, or if it is something else than a
  ///         regular file, such as a pipe: that may never come to an end
  InputFile(std::string flag, std::string path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  /// "--data train.bin", for messages.
  std::string name() const { return flag_ + " " + path_; }
  int64_t size() const { return size_; }  ///< bytes

  /// Fills `bytes` from byte `at` of the file on. Threads may read at once.
  /// @throws UserError if the disk fails, or if the file is not as it was when it was opened
  void read(std::span<std::byte> bytes, int64_t at) const;

 private:
  void check_unchanged() const;
  void refuse_unknown_size() const;

  std::string flag_, path_;
  int file_ = -1;
  int64_t size_ = 0;
  timespec changed_{};  ///< when its content last did
};

}  // namespace ladder
