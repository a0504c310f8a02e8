// Starts kernels on the CPU. kernels/cuda/native/launch.h has the same functions for a GPU.
#pragma once

#include <cuda_runtime.h>
#include <type_traits>

#include "kernels/context.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/on_cpu/block.h"

namespace ladder::LADDER_CUDA {

/// A Ctx, and the line that calls launch(). In errors that line names the kernel.
struct Launcher {
  // NOLINTNEXTLINE: implicit, so that the caller's line is taken
  Launcher(const Ctx& ctx_, on_cpu::Where where_ = on_cpu::Where::current())
      : ctx(ctx_), where(where_) {}
  const Ctx& ctx;
  on_cpu::Where where;
};

/// Runs `kernel` to its end, with `shared_bytes` of dynamic_shared() for each of its blocks. A
/// grid without blocks does nothing.
/// @throws CheckError naming the launch, the block and the thread where a fault happened;
/// OutOfMemory as check_grid and check_shared
template <class... Params>
void launch(const Launcher& from, void (*kernel)(Params...), const Grid& grid, int threads,
            int64_t shared_bytes, std::type_identity_t<Params>... args) {
  check_shared(shared_bytes, device_of(from.ctx).max_shared_bytes());
  on_cpu::run_grid(from.where, grid, threads, shared_bytes, [&] { kernel(args...); });
}

/// The shared memory whose size was given to launch(), aligned to 128 bytes.
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(on_cpu::dynamic_shared_memory());
}

}  // namespace ladder::LADDER_CUDA
