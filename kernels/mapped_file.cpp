#include "kernels/mapped_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include <sys/mman.h>

#include "kernels/check.h"

namespace ladder {
namespace {

int64_t page_size() { return sysconf(_SC_PAGESIZE); }

/// How many of `count` pages this process has in memory. Bit 63 of a page's entry in
/// /proc/self/pagemap says so.
int64_t pages_in_use(const void* memory, size_t count) {
  std::vector<uint64_t> pages(count);
  const size_t size = count * sizeof(uint64_t);
  const auto first = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory)) / page_size();
  const int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  const ssize_t got =
      file < 0 ? -1 : pread(file, pages.data(), size, first * static_cast<off_t>(sizeof(uint64_t)));
  if (file >= 0) close(file);
  CHECK(got == static_cast<ssize_t>(size), "/proc/self/pagemap cannot be read");
  return std::count_if(pages.begin(), pages.end(), [](uint64_t page) { return page >> 63; });
}

[[noreturn]] void fail(int64_t bytes, int error) {
  throw NoTemporaryFile(
      fmt::format("no temporary file of {} bytes in {}: {}; TMPDIR can name another folder", bytes,
                  temporary_folder(), std::strerror(error)));
}

}  // namespace

std::string temporary_folder() {
  const char* named = std::getenv("TMPDIR");
  return named && *named ? named : "/tmp";
}

std::FILE* open_temporary_file(const std::string& folder) {
  std::string name = folder + "/ladder-XXXXXX";
  const int fd = mkstemp(name.data());
  if (fd < 0) return nullptr;
  unlink(name.c_str());
  std::FILE* file = fdopen(fd, "w+");
  if (!file) close(fd);
  return file;
}

int64_t mapped_bytes(int64_t bytes) { return round_up(bytes, page_size()); }

void* map_file(int64_t bytes) {
  std::FILE* file = open_temporary_file();
  if (!file) fail(bytes, errno);
  const int64_t size = mapped_bytes(bytes);
  void* memory = MAP_FAILED;
  // Without this the file would have holes. A full disk would then show as a signal inside some
  // kernel.
  int error = 0;
  do error = posix_fallocate(fileno(file), 0, size);
  while (error == EINTR);
  if (error == 0) {
    memory = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED,
                  fileno(file), 0);
    error = errno;
  }
  std::fclose(file);  // the mapping keeps the file
  if (memory == MAP_FAILED) fail(bytes, error);
  return memory;
}

void unmap_file(void* memory, int64_t bytes) noexcept {
  munmap(memory, static_cast<size_t>(mapped_bytes(bytes)));
}

int64_t drop_pages(void* memory, int64_t bytes) {
  const auto size = static_cast<size_t>(mapped_bytes(bytes));
  const int64_t in_use = pages_in_use(memory, size / static_cast<size_t>(page_size()));
  CHECK(madvise(memory, size, MADV_DONTNEED) == 0, "madvise of {} bytes", size);
  return in_use * page_size();
}

}  // namespace ladder
