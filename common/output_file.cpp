#include "common/output_file.h"

#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include <sys/file.h>
#include <sys/stat.h>

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
  // A link is not followed, because it may lead to an input; and a pipe would wait for a reader.
  const int fd = ::open(partial_.c_str(),
                        O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  const bool is_other = fd < 0 && (errno == ELOOP || errno == ENXIO);
  if (fd >= 0) file_.reset(::fdopen(fd, "a"));
  struct stat found = {};
  if (!is_other && (!file_ || ::fstat(fd, &found) != 0)) fail();
  if (is_other || !S_ISREG(found.st_mode) || found.st_nlink > 1)
    throw UserError("{} {}: {} is a link or no plain file; legal is to remove it", what_, path,
                    partial_.string());
  is_ours_ = found.st_size == 0;
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
  struct stat written = {};
  if (!file_ || !is_ours_) return;
  std::fflush(file_.get());  // a full disk takes no more: what it holds stays
  if (::fstat(::fileno(file_.get()), &written) == 0 && written.st_size > 0) file_.reset();
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
