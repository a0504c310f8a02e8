// Chooses the engine of attention by dtype, channels and shared memory.
#pragma once

#include <initializer_list>

#include "kernels/cuda/attention_fma.h"
#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/table.h"

namespace ladder::LADDER_CUDA {

/// A block can have so much shared memory on an A100, and more on an H100. Where it has less, which
/// is 99 KiB on GPUs from sm_80 on, large heads take engines that need less. The bits are the same.
constexpr int64_t kMuchShared = 163 << 10;

/// Tensor cores are fed 16 bytes at a time.
inline void check_aligned(std::initializer_list<Tensor> tensors) {
  for (const Tensor& x : tensors)
    CHECK(reinterpret_cast<uintptr_t>(x.ptr) % 16 == 0,
          "attention over {}, not aligned to 16 bytes", to_string(x.shape));
}

/// Calls f(Type<E>{}) with engine E. Tensor cores take 16-bit elements and heads of 16, 32, 64 or
/// 128 channels: MmaOf<T, HS>, or SmallMmaOf. Fma takes all other heads of up to 128 channels.
template <template <class, int> class MmaOf, template <class, int> class SmallMmaOf, class F>
void with_engine(const Ctx& ctx, Dtype dtype, int64_t HS, F&& f) {
  CHECK(HS <= kMaxHead, "cuda attends with heads of at most {} channels, not {}", kMaxHead, HS);
  const bool small = device_of(ctx).max_shared_bytes() < kMuchShared;
  dispatch(dtype, [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) == 2) {
      if (HS == 16) return f(Type<MmaOf<T, 16>>{});
      if (HS == 32) return f(Type<MmaOf<T, 32>>{});
      if (HS == 64) return f(Type<MmaOf<T, 64>>{});
      if (HS == 128 && small) return f(Type<SmallMmaOf<T, 128>>{});
      if (HS == 128) return f(Type<MmaOf<T, 128>>{});
    }
    if (HS <= 16) return f(Type<Fma<T, 16>>{});
    if (HS <= 32) return f(Type<Fma<T, 32>>{});
    if (HS <= 64) return f(Type<Fma<T, 64>>{});
    if (small) return f(Type<SmallFma<T, 128>>{});
    return f(Type<Fma<T, 128>>{});
  });
}

}  // namespace ladder::LADDER_CUDA
