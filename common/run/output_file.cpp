#include "common/run/output_file.h"

#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include "common/error.h"

namespace ladder {
namespace fs = std::filesystem;

fs::path resolved(const fs::path& path) {
  std::error_code ignored;
  const fs::path found = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  return found.empty() ? path : found;
}

bool sync_directory(const fs::path& dir) {
  const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const int error = ::fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
  ::close(fd);
  errno = error;
  return error == 0;
}

// Through symbolic links: the file is replaced, not the link, unless that leads nowhere.
OutputFile::OutputFile(const std::string& path, std::string what)
    : what_(std::move(what)), path_(resolved(path)) {
  std::error_code ignored;
  const bool exists = fs::exists(path_, ignored);
  if (exists && !fs::is_regular_file(path_, ignored))
    throw UserError("{} {}: there is something that is not a file", what_, path);
  if (exists && ::access(path_.c_str(), W_OK) != 0) fail();

  // "x": fail where a file exists. A leftover of another process with this id is not ours.
  for (int i = 0; !file_; ++i) {
    temporary_ = fmt::format("{}.{}-{}.tmp", path_.string(), ::getpid(), i);
    file_.reset(std::fopen(temporary_.c_str(), "wxe"));
    if (!file_ && errno != EEXIST) fail();
  }
}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (file_) fs::remove(temporary_, ignored);
}

void OutputFile::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) fail();
}

void OutputFile::commit() {
  if (std::fflush(file_.get()) != 0 || ::fsync(::fileno(file_.get())) != 0) fail();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
  file_.reset();
  if (!sync_directory(path_.parent_path())) fail();
}

void OutputFile::keep_partial() {
  const std::string partial = path_.string() + ".partial";
  if (!file_ || std::fflush(file_.get()) != 0) return;
  if (std::rename(temporary_.c_str(), partial.c_str()) == 0) file_.reset();
}

void OutputFile::fail() const {
  throw UserError("{} {}: cannot be written: {}", what_, path_.string(),
                  std::generic_category().message(errno));
}

}  // namespace ladder
