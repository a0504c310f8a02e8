#include "kernels/cuda/on_cpu/runtime.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <malloc.h>
#include <map>
#include <mutex>

#include "kernels/cuda/on_cpu/shared.h"

namespace ladder::on_cpu {
namespace {

/// Memory is aligned as on a GPU, and no better, so that code cannot rely on more.
constexpr size_t kAlignment = 256;

std::atomic<bool> failed = false;

/// Blocks of memory, {begin, end}, for is_device_memory().
struct Given {
  std::mutex mutex;
  std::map<uintptr_t, uintptr_t> blocks;
};
Given& given() {
  static Given the;
  return the;
}

std::atomic<size_t> taken;  ///< of the memory, by all ranks

size_t all_memory() {
  const char* bytes = std::getenv("LADDER_ON_CPU_MEMORY");
  return bytes ? std::strtoull(bytes, nullptr, 10) : size_t{1} << 40;
}

}  // namespace

struct Stream {};

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
  }
  return "unknown error";
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::strcpy(properties->name, "stand-in for a GPU on the CPU");
  return cudaSetDevice(device);
}

// Compute capability 9.0, Hopper: it has all instructions that a kernel of ours uses.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  switch (which) {
    case cudaDevAttrClockRate: *value = 0; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int{kMaxShared}; break;
  }
  return cudaSetDevice(device);
}

void __trap() { failed = true; }

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (taken + bytes > all_memory() || posix_memalign(memory, kAlignment, bytes) != 0)
    return cudaErrorMemoryAllocation;
  taken += malloc_usable_size(*memory);
  std::memset(*memory, 0xFF, bytes);
  const auto begin = reinterpret_cast<uintptr_t>(*memory);
  const std::lock_guard lock(given().mutex);
  given().blocks[begin] = begin + bytes;
  return cudaSuccess;
}

bool is_device_memory(const void* p) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  const std::lock_guard lock(given().mutex);
  const auto after = given().blocks.upper_bound(at);
  return after != given().blocks.begin() && at < std::prev(after)->second;
}

cudaError_t cudaMemGetInfo(size_t* left, size_t* all) {
  *all = all_memory();
  *left = *all - taken;
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) { return cudaMalloc(memory, bytes); }

cudaError_t cudaFree(void* memory) {
  {
    const std::lock_guard lock(given().mutex);
    given().blocks.erase(reinterpret_cast<uintptr_t>(memory));
  }
  taken -= malloc_usable_size(memory);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new Stream;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (failed) return cudaErrorLaunchFailure;
  return stream ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  std::memset(memory, value, bytes);
  return cudaStreamSynchronize(stream);
}

cudaError_t cudaMemcpyAsync(void* out, const void* inp, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (bytes > 0) std::memmove(out, inp, bytes);  // of 0 bytes, pointers may be null
  return cudaStreamSynchronize(stream);
}

}  // namespace ladder::on_cpu
