#include "common/output_file.h"

#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <sys/file.h>
#include <sys/stat.h>

#include "common/error.h"

namespace ladder {
namespace fs = std::filesystem;

namespace {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  /// Leaves errno as it is.
  ~Descriptor() {
    const int error = errno;
    if (fd_ >= 0) ::close(fd_);
    errno = error;
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

/// Whether the open file is still the one that the path names: another program may have renamed it.
bool is_named(int fd, const fs::path& path) {
  struct stat open = {}, named = {};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

}  // namespace

fs::path resolved(const fs::path& path) {
  std::error_code ignored;
  const fs::path found = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  return found.empty() ? path : found;
}

// A directory that this program may not read cannot be synchronized, either.
bool sync_directory(const fs::path& dir) {
  const Descriptor opened(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) return errno == EACCES;
  return ::fsync(opened.get()) == 0 || errno == EINVAL || errno == ENOTSUP;
}

fs::path partial_of(const fs::path& path) { return resolved(path) += kPartial; }

// Follows symbolic links: the file is replaced, not the link, unless the link leads nowhere.
OutputFile::OutputFile(const std::string& path, std::string what)
    : what_(std::move(what)), path_(resolved(path)), partial_(partial_of(path)) {
  std::error_code ignored;
  const bool exists = fs::exists(path_, ignored);
  if (exists && !fs::is_regular_file(path_, ignored))
    throw UserError("{} {}: there is something that is not a file", what_, path);
  if (exists && ::access(path_.c_str(), W_OK) != 0) fail();
  open_partial();
  take_mode_and_owner();
}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (file_ && is_ours_) fs::remove(partial_, ignored);
}

// Refuses a link, or a second name of some file: what it leads to is not ours to write.
void OutputFile::open_partial() {
  for (bool named = false; !named;) {
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    Descriptor opened(::open(partial_.c_str(), flags, 0666));
    struct stat found = {};
    if (opened.get() < 0 && errno != ELOOP && errno != EISDIR && errno != ENXIO) fail();
    if (opened.get() < 0 || ::fstat(opened.get(), &found) != 0 || !S_ISREG(found.st_mode) ||
        found.st_nlink > 1)
      throw UserError("{} {}: {} is in the way, which is no plain file", what_, path_.string(),
                      partial_.string());
    // If a file system has no locks, two programs are not told apart.
    if (::flock(opened.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw UserError("{} {}: another program is writing {}", what_, path_.string(),
                      partial_.string());
    named = is_named(opened.get(), partial_);
    if (!named) continue;
    is_ours_ = found.st_size == 0;
    file_.reset(::fdopen(opened.get(), "w"));
    if (!file_) fail();
    opened.release();
  }
}

// The owner comes first, because changing it may change the mode. It needs a privilege. A file that
// a group shares is still written without it.
void OutputFile::take_mode_and_owner() {
  struct stat old = {};
  if (::stat(path_.c_str(), &old) != 0) return;
  const int fd = ::fileno(file_.get());
  if (::fchown(fd, old.st_uid, old.st_gid) != 0 && ::fchown(fd, -1, old.st_gid) != 0) errno = 0;
  if (::fchmod(fd, old.st_mode & 0777) != 0) fail();
}

void OutputFile::write(std::string_view bytes) {
  if (!is_ours_ && ::ftruncate(::fileno(file_.get()), 0) != 0) fail();
  is_ours_ = true;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) fail();
}

void OutputFile::flush() {
  if (std::fflush(file_.get()) != 0) fail();
}

void OutputFile::commit() {
  write("");
  flush();
  if (::fsync(::fileno(file_.get())) != 0) fail();
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

}  // namespace ladder
