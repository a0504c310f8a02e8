// Starts kernels on a GPU. kernels/cuda/on_cpu/launch.h has the same functions for the CPU.
#pragma once

#include <cuda_runtime.h>
#include <type_traits>

#include "kernels/context.h"
#include "kernels/cuda/grid.h"

namespace ladder::LADDER_CUDA {

/// launch() without types. `args` points at the pointers to the arguments.
void launch_kernel(const Ctx& ctx, const void* kernel, const Grid& grid, int threads,
                   int64_t shared_bytes, void** args);

/// Queues `kernel` on the compute stream of ctx, with `shared_bytes` of dynamic_shared() for each
/// of its blocks. A grid without blocks does nothing.
/// @throws CheckError naming the kernel if it cannot be started; OutOfMemory as check_grid and
/// check_shared
template <class... Params>
void launch(const Ctx& ctx, void (*kernel)(Params...), const Grid& grid, int threads,
            int64_t shared_bytes, std::type_identity_t<Params>... args) {
  void* pointers[] = {&args..., nullptr};
  launch_kernel(ctx, reinterpret_cast<const void*>(kernel), grid, threads, shared_bytes, pointers);
}

/// The shared memory whose size was given to launch(), aligned to 1024 bytes.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}

}  // namespace ladder::LADDER_CUDA
