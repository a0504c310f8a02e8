// The inputs of blocks on disk, while no block needs them. The file has no name: it is gone with
// the program, however that ends.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

#include "common/error.h"
#include "kernels/temporary_file.h"
#include "kernels/transfer.h"

namespace ladder {

class OffloadFile {
 public:
  /// Nothing unless `on`.
  /// @param moved grows by the bytes that are written and read
  /// @throws UserError if no file can be created in $TMPDIR or /tmp
  OffloadFile(bool on, int64_t& moved)
      : file_(on ? open_temporary_file() : nullptr), moved_(moved) {
    if (on && !file_)
      throw UserError(
          "--recompute offload cannot create a file in {}: {}; legal is a folder to write in, and "
          "TMPDIR can name another",
          temporary_folder(), std::strerror(errno));
  }

  /// Keeps the input of block l. All inputs have one size.
  void write(const Ctx& ctx, int64_t l, Tensor input) {
    if (!file_) return;
    go_to(l, input);
    const auto bytes = static_cast<size_t>(input.bytes());
    // Flushed, so that a full disk shows here and not in backward.
    const HostCopy host = HostCopy::of(ctx, input);
    if (std::fwrite(host.tensor().ptr, 1, bytes, file_.get()) != bytes ||
        std::fflush(file_.get()) != 0)
      throw UserError(
          "--recompute offload cannot write {} bytes in {}: {}; TMPDIR can name another folder",
          bytes, temporary_folder(), std::strerror(errno));
    moved_ += input.bytes();
  }

  /// Brings it back.
  void read(const Ctx& ctx, int64_t l, Tensor input) {
    if (!file_) return;
    go_to(l, input);
    const auto bytes = static_cast<size_t>(input.bytes());
    const HostCopy host = HostCopy::to_write(ctx, input);
    if (std::fread(host.tensor().ptr, 1, bytes, file_.get()) != bytes)
      throw UserError("--recompute offload cannot read back the input of block {}", l);
    host.send();
    moved_ += input.bytes();
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  void go_to(int64_t l, const Tensor& input) {
    if (fseeko(file_.get(), l * input.bytes(), SEEK_SET) != 0)
      throw UserError("--recompute offload cannot use its temporary file");
  }

  std::unique_ptr<std::FILE, Close> file_;
  int64_t& moved_;
};

}  // namespace ladder
