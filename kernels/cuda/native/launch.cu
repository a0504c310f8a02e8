#include <cstdlib>
#include <cxxabi.h>
#include <memory>
#include <string>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/native/launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// Shared memory that a block can have without permission, including its static arrays.
constexpr int64_t kDefaultShared = 48 << 10;

std::string name_of(const void* kernel) {
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, kernel) != cudaSuccess) return "a kernel";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  return plain ? plain.get() : mangled;
}

dim3 checked(const Grid& grid) {
  check_grid(grid);
  return dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
              static_cast<unsigned>(grid.z));
}

/// Allows the kernel all the shared memory that a block can have. It does not depend on `bytes`,
/// because another rank of this process may come between this call and its launch.
cudaError_t allow_shared(const Ctx& ctx, const void* kernel, int64_t bytes) {
  if (bytes == 0) return cudaSuccess;
  cudaFuncAttributes found;
  const cudaError_t error = cudaFuncGetAttributes(&found, kernel);
  if (error != cudaSuccess) return error;
  const auto fixed = static_cast<int64_t>(found.sharedSizeBytes);
  check_shared(fixed + bytes, device_of(ctx).max_shared_bytes());
  if (fixed + bytes <= kDefaultShared) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(device_of(ctx).max_shared_bytes() - fixed));
}

}  // namespace

void launch_kernel(const Ctx& ctx, const void* kernel, const Grid& grid, int threads,
                   int64_t shared_bytes, void** args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaError_t error = allow_shared(ctx, kernel, shared_bytes);
  if (error == cudaSuccess)
    error = cudaLaunchKernel(kernel, checked(grid), dim3(static_cast<unsigned>(threads)), args,
                             static_cast<size_t>(shared_bytes), device_of(ctx).compute());
  CHECK(error == cudaSuccess, "{} with {} threads and {} bytes of shared memory: {}",
        name_of(kernel), threads, shared_bytes, cudaGetErrorString(error));
}

}  // namespace ladder::LADDER_CUDA
