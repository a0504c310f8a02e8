#include "common/run/input_file.h"

#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include <sys/stat.h>

#include "common/error.h"
#include "kernels/check.h"

namespace ladder {
namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  if (error == ENOENT) throw UserError("{}: no such file", path);
  throw UserError("{}: cannot be read: {}", path, std::generic_category().message(error));
}

}  // namespace

void InputFile::Close::operator()(const int* fd) const {
  ::close(*fd);
  delete fd;
}

InputFile::InputFile(const std::string& path) : path_(path) {
  // Of a pipe, too, without waiting for who writes.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(path, errno);
  fd_.reset(new int(fd));
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail(path, errno);
  if (!S_ISREG(info.st_mode))
    throw UserError("{}: cannot be read: a directory, a pipe or a device, not a file", path);
  size_ = info.st_size;
}

void InputFile::read(int64_t begin, std::span<std::byte> out) const {
  CHECK(begin >= 0 && begin <= size_ && std::ssize(out) <= size_ - begin, "bytes {} to {} of {}",
        begin, begin + std::ssize(out), size_);
  while (!out.empty()) {
    const ssize_t n = ::pread(*fd_, out.data(), out.size(), begin);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, errno);
    if (n == 0) throw UserError("{}: became shorter while it was read", path_);
    begin += n;
    out = out.subspan(static_cast<size_t>(n));
  }
}

std::string read_small_file(const std::string& path, int64_t most) {
  const InputFile file(path);
  if (file.size() > most)
    throw UserError("{}: has {} bytes; legal are at most {}", path, file.size(), most);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace ladder
