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
  const int file = mkstemp(name.data());
  if (file < 0) return nullptr;
  unlink(name.c_str());
  return fdopen(file, "w+");
}

}  // namespace ladder
