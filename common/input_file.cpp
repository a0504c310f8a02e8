#include "common/input_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <system_error>
#include <unistd.h>

#include <sys/stat.h>

#include "common/error.h"
#include "kernels/check.h"

namespace ladder {

void CloseDescriptor::operator()(const int* fd) const {
  ::close(*fd);
  delete fd;
}

void InputFile::fail(int error) const {
  if (error == ENOENT) throw UserError("{}: no such file", name_);
  throw UserError("{}: cannot be read: {}", name_, std::generic_category().message(error));
}

InputFile::InputFile(const std::string& path, std::string_view flag,
                     std::span<const std::byte> bytes)
    : path_(path),
      name_(flag.empty() ? path : fmt::format("{} {}", flag, path)),
      memory_(bytes),
      size_(std::ssize(bytes)) {}

InputFile::InputFile(const std::string& path, std::string_view flag) : InputFile(path, flag, {}) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe does not wait
  if (fd < 0) fail(errno);
  fd_.reset(new int(fd));
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail(errno);
  if (!S_ISREG(info.st_mode)) throw UserError("{}: cannot be read: not a regular file", name_);
  size_ = info.st_size;
  written_ = info.st_mtim;
}

void InputFile::check_unchanged() const {
  struct stat now {};
  if (::fstat(*fd_, &now) != 0) fail(errno);
  if (now.st_size != size_)
    throw UserError("{}: became {}: {} bytes, and {} when it was opened", name_,
                    now.st_size < size_ ? "shorter" : "longer", int64_t{now.st_size}, size_);
  if (now.st_mtim.tv_sec != written_.tv_sec || now.st_mtim.tv_nsec != written_.tv_nsec)
    throw UserError("{}: has been written to since it was opened", name_);
}

void InputFile::read(int64_t begin, std::span<std::byte> out) const {
  CHECK(begin >= 0 && begin <= size_ && std::ssize(out) <= size_ - begin, "bytes {} to {} of {}",
        begin, begin + std::ssize(out), size_);
  if (!fd_) {
    std::ranges::copy(memory_.subspan(static_cast<size_t>(begin), out.size()), out.begin());
    return;
  }
  while (!out.empty()) {
    const ssize_t n = ::pread(*fd_, out.data(), out.size(), begin);
    if (n < 0) fail(errno);
    if (n == 0) break;  // the file has become shorter
    begin += n;
    out = out.subspan(static_cast<size_t>(n));
  }
  check_unchanged();
  if (!out.empty()) throw UserError("{}: ends at byte {} of {}", name_, begin, size_);
}

std::string read_small_file(const std::string& path, int64_t most, std::string_view flag) {
  const InputFile file(path, flag);
  if (file.size() > most)
    throw UserError("{}: has {} bytes; legal are at most {}", file.name(), file.size(), most);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// No range-for: its ++ throws if the disk fails.
std::vector<std::string> names_in(const std::string& directory) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  if (error) return {};
  std::ranges::sort(names);
  return names;
}

}  // namespace ladder
