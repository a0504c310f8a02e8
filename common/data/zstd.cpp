#include "common/data/zstd.h"

#include <algorithm>
#include <new>
#include <vector>
#include <zstd.h>

#include "common/error.h"

namespace ladder {
namespace {

constexpr int kLevel = 3;  // Zstandard's own default

class ZstdSource : public ByteSource {
 public:
  explicit ZstdSource(const InputFile& file)
      : file_(file), stream_(ZSTD_createDStream()), packed_(ZSTD_DStreamInSize()) {
    if (!stream_) throw std::bad_alloc();
  }

  size_t read(std::span<std::byte> out) override {
    ZSTD_outBuffer room{out.data(), out.size(), 0};
    while (room.pos == 0) {
      if (in_.pos == in_.size && !refill()) break;
      wanted_ = ZSTD_decompressStream(stream_.get(), &room, &in_);
      if (ZSTD_isError(wanted_))
        throw UserError("{}: is not what Zstandard has written: {}", file_.name(),
                        std::string(ZSTD_getErrorName(wanted_)));
    }
    return room.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };

  /// @return false at the end of the file. There, an open frame is an error.
  bool refill() {
    const auto size = std::min(std::ssize(packed_), file_.size() - at_);
    if (size == 0 && wanted_ != 0)
      throw UserError("{}: ends in the middle of what Zstandard has written", file_.name());
    if (size == 0) return false;
    file_.read(at_, std::span(packed_).first(static_cast<size_t>(size)));
    at_ += size;
    in_ = {packed_.data(), static_cast<size_t>(size), 0};
    return true;
  }

  const InputFile& file_;
  std::unique_ptr<ZSTD_DStream, Free> stream_;
  std::vector<std::byte> packed_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  int64_t at_ = 0;
  size_t wanted_ = 0;  ///< bytes that the open frame needs; 0: no frame is open
};

}  // namespace

std::unique_ptr<ByteSource> zstd_source(const InputFile& file) {
  return std::make_unique<ZstdSource>(file);
}

std::string zstd_frame(std::string_view bytes) {
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size =
      ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), kLevel);
  if (ZSTD_isError(size)) throw std::bad_alloc();
  packed.resize(size);
  return packed;
}

}  // namespace ladder
