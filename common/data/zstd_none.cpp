// Replaces zstd.cpp in a build without Zstandard.
#include "common/data/zstd.h"
#include "common/error.h"

namespace ladder {

std::unique_ptr<ByteSource> zstd_source(const InputFile& file) {
  throw UserError("{}: this build has no Zstandard; legal are files that are not compressed",
                  file.name());
}

std::string zstd_frame(std::string_view) {
  throw UserError("a name that ends in .zst: this build has no Zstandard");
}

}  // namespace ladder
