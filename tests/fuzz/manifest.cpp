// Any bytes as the manifest of a checkpoint: refused in a line, or what write() wrote.
#include "common/save/manifest.h"

#include <filesystem>
#include <fstream>
#include <string_view>
#include <unistd.h>

#include "common/error.h"

namespace {

/// A directory of this process, which goes with it.
class OwnDirectory {
 public:
  OwnDirectory() { std::filesystem::create_directories(path); }
  OwnDirectory(const OwnDirectory&) = delete;
  OwnDirectory& operator=(const OwnDirectory&) = delete;
  ~OwnDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("ladder-fuzz-" + std::to_string(::getpid()));
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const OwnDirectory directory;
  std::ofstream(ladder::Manifest::path_in(directory.path), std::ios::binary)
      << std::string_view(reinterpret_cast<const char*>(data), size);
  try {
    ladder::Manifest::read(directory.path).steps();
  } catch (const ladder::UserError&) {
  }
  return 0;
}
