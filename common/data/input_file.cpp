#include "common/data/input_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include <sys/stat.h>

#include "common/error.h"

namespace ladder {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

/// What pread() gives, a signal between or not.
ssize_t read_at(int file, std::span<std::byte> bytes, int64_t at) {
  ssize_t got = 0;
  do got = ::pread(file, bytes.data(), bytes.size(), at);
  while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

InputFile::InputFile(std::string flag, std::string path)
    : flag_(std::move(flag)), path_(std::move(path)) {
  struct stat status {};
  // Before it is opened: that can wait for another process, and do things to a device.
  if (::stat(path_.c_str(), &status) != 0) throw UserError("{}: {}", name(), std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    throw UserError("{}: is {}; {} takes a regular file", name(), kind_of(status.st_mode), flag_);
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0 || ::fstat(file_, &status) != 0)
    throw UserError("{}: {}", name(), std::strerror(errno));
  size_ = status.st_size;
  changed_ = status.st_mtim;
  if (size_ == 0) refuse_unknown_size();
}

InputFile::~InputFile() {
  if (file_ >= 0) ::close(file_);
}

// The system makes up files of /proc as they are read, some of them without an end.
void InputFile::refuse_unknown_size() const {
  std::byte first{};
  if (read_at(file_, {&first, 1}, 0) != 0)
    throw UserError("{}: does not say its size; {} takes a regular file", name(), flag_);
}

void InputFile::check_unchanged() const {
  struct stat now {};
  if (::fstat(file_, &now) != 0) throw UserError("{}: {}", name(), std::strerror(errno));
  if (now.st_size != size_)
    throw UserError("{}: has {} bytes now, and had {} when the run began", name(),
                    static_cast<int64_t>(now.st_size), size_);
  if (now.st_mtim.tv_sec != changed_.tv_sec || now.st_mtim.tv_nsec != changed_.tv_nsec)
    throw UserError("{}: has been written to since the run began", name());
}

void InputFile::read(std::span<std::byte> bytes, int64_t at) const {
  while (!bytes.empty()) {
    const ssize_t got = read_at(file_, bytes, at);
    if (got < 0)
      throw UserError("{}: cannot be read at byte {}: {}", name(), at, std::strerror(errno));
    if (got == 0) break;
    bytes = bytes.subspan(static_cast<size_t>(got));
    at += got;
  }
  check_unchanged();
  if (!bytes.empty()) throw UserError("{}: ends at byte {} of {}", name(), at, size_);
}

}  // namespace ladder
