// --offload inputs: the inputs from which backward computes segments again wait in a file until
// backward needs them. The file has no name, so it vanishes with the program, however the program
// ends.
//
// There are ceil(L/K) segments. The last one is still there when backward begins. The inputs of all
// others are written once and read back once in a micro-step. Only two buffers stay in memory: a
// segment reads one and writes the other.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "chapters/06_checkpointing/recompute.h"
#include "common/error.h"
#include "common/input_file.h"
#include "kernels/mapped_file.h"
#include "kernels/transfer.h"

namespace ladder {

/// For each of L blocks: whether backward computes a segment again from the block's input.
inline std::vector<bool> inputs_needed(const Recompute& recompute, int64_t layers) {
  std::vector<bool> needed(static_cast<size_t>(layers));
  for (int64_t l = 0; l < layers; ++l)
    if (const Range segment = recompute.segment_before(l); segment.size() > 0)
      needed[static_cast<size_t>(segment.begin)] = true;
  return needed;
}

class OffloadFile {
 public:
  /// @param needed which inputs go to the file; if none, there is no file
  /// @throws UserError if no file can be created in $TMPDIR or /tmp
  explicit OffloadFile(std::vector<bool> needed)
      : needed_(std::move(needed)), file_(needed_.empty() ? nullptr : open_temporary_file()) {
    if (!needed_.empty() && !file_)
      throw UserError(
          "--offload inputs cannot create a file in {}: {}; legal is a folder to write in, and "
          "TMPDIR can name another",
          temporary_folder(), std::strerror(errno));
  }

  void begin_step() { moved_ = 0; }
  /// Bytes written and read since the step began.
  int64_t moved() const { return moved_; }

  /// Writes the input of block l to the file, if it is needed. All inputs have the same size.
  void write(const Ctx& ctx, int64_t l, Tensor input) {
    if (!file_ || !needed_[static_cast<size_t>(l)]) return;
    go_to(l, input);
    const auto bytes = static_cast<size_t>(input.bytes());
    // Flushed, so that a full disk shows here, and not in backward.
    const HostCopy host = HostCopy::of(ctx, input);
    if (std::fwrite(host.tensor().ptr, 1, bytes, file_.get()) != bytes ||
        std::fflush(file_.get()) != 0)
      throw UserError(
          "--offload inputs cannot write {} bytes in {}: {}; TMPDIR can name another folder", bytes,
          temporary_folder(), std::strerror(errno));
    moved_ += input.bytes();
  }

  /// Reads it back.
  void read(const Ctx& ctx, int64_t l, Tensor input) {
    if (!file_) return;
    go_to(l, input);
    const auto bytes = static_cast<size_t>(input.bytes());
    const HostCopy host = HostCopy::to_write(ctx, input);
    if (std::fread(host.tensor().ptr, 1, bytes, file_.get()) != bytes)
      throw UserError("--offload inputs cannot read back the input of block {}", l);
    host.send();
    moved_ += input.bytes();
  }

 private:
  void go_to(int64_t l, const Tensor& input) {
    if (fseeko(file_.get(), l * input.bytes(), SEEK_SET) != 0)
      throw UserError("--offload inputs cannot use its temporary file");
  }

  std::vector<bool> needed_;
  FilePointer file_;
  int64_t moved_ = 0;
};

}  // namespace ladder
