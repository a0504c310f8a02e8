#include "tests/common/bad_disk.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>

namespace ladder {
namespace {

/// Counts an operation. Returns whether it must fail; errno says how.
bool fails() {
  const int now = std::atomic_ref(bad_disk.operations)++;
  if (now == bad_disk.die_at) ::kill(::getpid(), SIGKILL);
  errno = EIO;
  return now == bad_disk.fail_at;
}

void note(const std::string& operation) {
  if (bad_disk.done) bad_disk.done->push_back(operation);
}

std::string path_of(int fd) {
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = ::readlink(link.c_str(), path, sizeof path);
  return {path, static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

bool is_unreadable(int fd) {
  if (bad_disk.unreadable.empty()) return false;
  const std::string path = path_of(fd);
  errno = EIO;
  return path.ends_with("/" + bad_disk.unreadable);
}

}  // namespace
}  // namespace ladder

using ladder::bad_disk;

extern "C" {

int fsync(int fd) {
  if (ladder::fails()) return -1;
  ladder::note("fsync " + ladder::path_of(fd));
  ::usleep(static_cast<useconds_t>(bad_disk.fsync_ms) * 1000);
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

int rename(const char* from, const char* to) noexcept {
  if (ladder::fails()) return -1;
  ladder::note(std::string("rename ") + to);
  return ::renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (ladder::fails()) return -1;
  return ::mkdirat(AT_FDCWD, path, mode);
}

int symlink(const char* to, const char* link) noexcept {
  if (ladder::fails()) return -1;
  errno = EPERM;
  return bad_disk.no_links ? -1 : ::symlinkat(to, AT_FDCWD, link);
}

int remove(const char* path) noexcept {
  if (ladder::fails()) return -1;
  ladder::note(std::string("remove ") + path);
  if (::unlinkat(AT_FDCWD, path, 0) == 0) return 0;
  return errno == EISDIR || errno == EPERM ? ::unlinkat(AT_FDCWD, path, AT_REMOVEDIR) : -1;
}

int flock(int fd, int operation) noexcept {
  errno = ENOLCK;
  return bad_disk.no_locks ? -1 : static_cast<int>(::syscall(SYS_flock, fd, operation));
}

FILE* fopen(const char* path, const char* mode) {
  static const auto real =
      reinterpret_cast<FILE* (*)(const char*, const char*)>(::dlsym(RTLD_NEXT, "fopen"));
  return ladder::fails() ? nullptr : real(path, mode);
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  while (std::atomic_ref(bad_disk.held)) ::usleep(1000);
  if (ladder::fails()) return -1;
  return ::syscall(SYS_pwrite64, fd, bytes, size, offset);
}

int ftruncate(int fd, off_t size) noexcept {
  if (ladder::fails()) return -1;
  return static_cast<int>(::syscall(SYS_ftruncate, fd, size));
}

ssize_t pread(int fd, void* buffer, size_t size, off_t offset) {
  if (ladder::is_unreadable(fd)) return -1;
  return ::syscall(SYS_pread64, fd, buffer, size, offset);
}

}  // extern "C"
