#include "common/save/shared_file.h"

#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include "common/checksum.h"
#include "common/error.h"
#include "common/random.h"
#include "kernels/check.h"

namespace ladder {
uint64_t cover_of(int64_t begin, int64_t end) {
  const Random random(0, "places in a file");
  const auto at = [&](int64_t place) { return random.bits(static_cast<uint64_t>(place))[0]; };
  return at(begin) - at(end);
}

SharedFile::SharedFile(const std::string& path, int64_t bytes) : path_(path), bytes_(bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) fail();
  fd_.reset(new int(fd));
  // If it has that size already, nothing changes.
  if (::ftruncate(fd, bytes) != 0) fail();
}

void SharedFile::write(int64_t at, std::span<const std::byte> run) {
  const int64_t behind = bytes_ - at - std::ssize(run);
  CHECK(at >= 0 && behind >= 0, "{} bytes at {} of {}", run.size(), at, bytes_);
  sum_ += {crc32c_of_run(run, behind), cover_of(at, at + std::ssize(run))};
  while (!run.empty()) {
    const ssize_t n = ::pwrite(*fd_, run.data(), run.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail();
    at += n;
    run = run.subspan(static_cast<size_t>(n));
  }
}

void SharedFile::sync() {
  if (::fsync(*fd_) != 0) fail();
}

void SharedFile::fail() const {
  throw UserError("checkpoint {}: cannot be written: {}", path_,
                  std::generic_category().message(errno));
}

}  // namespace ladder
