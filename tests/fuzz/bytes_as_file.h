// BytesAsFile: what a fuzzer made, under a path that programs can open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unistd.h>

#include <sys/mman.h>

namespace ladder {

/// A regular file in memory, gone with the object.
class BytesAsFile {
 public:
  BytesAsFile(const uint8_t* data, size_t size) : fd_(::memfd_create("input", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, data, size) != static_cast<ssize_t>(size)) ::_exit(1);
  }
  BytesAsFile(const BytesAsFile&) = delete;
  BytesAsFile& operator=(const BytesAsFile&) = delete;
  ~BytesAsFile() { ::close(fd_); }

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace ladder
