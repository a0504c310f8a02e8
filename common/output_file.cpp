#include "common/output_file.h"

#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include <sys/file.h>

#include "common/error.h"

namespace ladder {
namespace fs = std::filesystem;

fs::path resolved(const fs::path& path) {
  std::error_code ignored;
  const fs::path found = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  if (found.empty()) return path;
  return found.has_filename() ? found : found.parent_path();
}

fs::path partial_of(const fs::path& path) { return resolved(path) += kPartial; }

// A directory that this program may not read cannot be synchronized, either.
bool sync_directory(const fs::path& dir) {
  const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == EACCES;
  const bool done = ::fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
  const int error = errno;
  ::close(fd);
  errno = error;
  return done;
}

// Through symbolic links: the file is replaced, not the link, unless that leads nowhere.
OutputFile::OutputFile(const std::string& path, std::string what)
    : what_(std::move(what)), path_(resolved(path)), partial_(partial_of(path)) {
  std::error_code ignored;
  const bool exists = fs::exists(path_, ignored);
  if (exists && !fs::is_regular_file(path_, ignored))
    throw UserError("{} {}: there is something that is not a file", what_, path);
  if (exists && ::access(path_.c_str(), W_OK) != 0) fail();
  // Not through a link: what it leads to would be emptied.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
  const int fd = ::open(partial_.c_str(), kFlags, 0666);
  if (fd < 0) fail();
  file_.reset(::fdopen(fd, "a"));
  is_ours_ = fs::file_size(partial_, ignored) == 0;
  // Where a file system has no locks, two programs are not told apart. If the lock is free because
  // another program has just ended, that program has renamed the file.
  const bool locked = ::flock(::fileno(file_.get()), LOCK_EX | LOCK_NB) == 0;
  if ((locked || errno != EWOULDBLOCK) && fs::exists(partial_, ignored)) return;
  file_.reset();
  throw UserError("{} {}: another program is writing {}", what_, path_.string(), partial_.string());
}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (file_ && is_ours_) fs::remove(partial_, ignored);
}

void OutputFile::write(std::string_view bytes) {
  if (!is_ours_ && ::ftruncate(::fileno(file_.get()), 0) != 0) fail();
  is_ours_ = true;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) fail();
}

void OutputFile::flush() {
  if (std::fflush(file_.get()) != 0) fail();
}

void OutputFile::sync() {
  write("");
  flush();
  if (::fsync(::fileno(file_.get())) != 0) fail();
}

void OutputFile::commit() {
  sync();
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail();
  file_.reset();
  if (!sync_directory(path_.parent_path())) fail();
}

void OutputFile::keep_partial() {
  std::error_code ignored;
  if (!file_ || !is_ours_) return;
  std::fflush(file_.get());  // a full disk takes no more: what it holds stays
  if (fs::file_size(partial_, ignored) > 0) file_.reset();
}

void OutputFile::fail() const {
  throw UserError("{} {}: cannot be written: {}", what_, path_.string(),
                  std::generic_category().message(errno));
}

void write_file(const std::string& path, const std::string& what, std::string_view text) {
  OutputFile file(path, what);
  file.write(text);
  file.commit();
}

}  // namespace ladder
