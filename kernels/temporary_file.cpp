#include "kernels/temporary_file.h"

#include <cstdlib>
#include <unistd.h>

namespace ladder {

std::string temporary_folder() {
  const char* named = std::getenv("TMPDIR");
  return named && *named ? named : "/tmp";
}

std::FILE* open_temporary_file() {
  std::string name = temporary_folder() + "/ladder-XXXXXX";
  const int fd = mkstemp(name.data());
  if (fd < 0) return nullptr;
  unlink(name.c_str());
  std::FILE* file = fdopen(fd, "w+");
  if (!file) close(fd);
  return file;
}

}  // namespace ladder
