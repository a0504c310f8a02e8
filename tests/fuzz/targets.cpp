// What reads files that anyone may have written: any bytes are refused in a line, or read. Each
// function is a program of its own, which CMakeLists.txt names in LADDER_FUZZ_TARGET.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <unistd.h>

#include <sys/mman.h>

#include "common/data/text.h"
#include "common/error.h"
#include "common/hf/safetensors.h"
#include "common/json.h"
#include "common/save/directory.h"
#include "common/save/hf_config.h"
#include "common/save/manifest.h"

namespace ladder::fuzz {

/// A regular file in memory, gone with the object.
class BytesAsFile {
 public:
  explicit BytesAsFile(std::string_view bytes) : fd_(::memfd_create("input", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, bytes.data(), bytes.size()) != std::ssize(bytes)) ::_exit(1);
  }
  BytesAsFile(const BytesAsFile&) = delete;
  BytesAsFile& operator=(const BytesAsFile&) = delete;
  ~BytesAsFile() { ::close(fd_); }

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

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

/// The config.json of somebody's weights.
void hf_config(std::string_view bytes) { check_hf_config(parse_json(bytes), preset("nano")); }

/// The manifest of a checkpoint.
void manifest(std::string_view bytes) {
  static const OwnDirectory directory;
  std::ofstream(directory.path / kManifestFile, std::ios::binary) << bytes;
  Manifest::read(directory.path).steps();
}

void safetensors(std::string_view bytes) {
  const BytesAsFile file(bytes);
  SafetensorsReader(file.path()).sum();
}

/// --data, in each form that --tokens names.
void tokens(std::string_view bytes) {
  constexpr int64_t kSeqLen = 4, kVocab = 300;
  const BytesAsFile file(bytes);
  const std::string path = file.path();
  for (const char* name : kNames<TokenKind>) try {
      const auto format = find_format(InputFile(path), *named<TokenKind>(name), kVocab);
      const Text text({.path = path, .format = format, .seq_len = kSeqLen, .vocab = kVocab});
      Arena arena;
      const Batch batch = alloc_batch(arena, 2, kSeqLen);
      text.draw(batch, /*seed=*/1, /*step=*/0);
      text.draw_validation(batch.slice(0, 1), 0);
    } catch (const UserError&) {
    }
}

}  // namespace ladder::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    ladder::fuzz::LADDER_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  } catch (const ladder::UserError&) {
  }
  return 0;
}
