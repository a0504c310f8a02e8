// Hands Ctx::scratch out to the kernels of one operation, piece by piece.
#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace ladder::LADDER_CUDA {

/// Operations run one after another, so each may use all of it.
class Scratch {
 public:
  explicit Scratch(const Ctx& ctx) : all_(ctx.scratch) {}

  /// Bytes that are left.
  int64_t room() const { return all_.bytes() - used_; }

  /// `count` elements, aligned to 256 bytes. Their values are undefined.
  /// @throws OutOfMemory if there is no room for them
  template <class T>
  T* take(int64_t count) {
    const int64_t begin = used_;
    used_ = round_up(begin + count * static_cast<int64_t>(sizeof(T)), int64_t{256});
    if (used_ > all_.bytes())
      throw OutOfMemory(fmt::format("an operation takes {} bytes of scratch, and there are {}",
                                    used_, all_.bytes()));
    return reinterpret_cast<T*>(static_cast<char*>(all_.ptr) + begin);
  }

 private:
  Tensor all_;
  int64_t used_ = 0;
};

}  // namespace ladder::LADDER_CUDA
