// The few functions of CUDA's runtime library that CudaDevice calls. The host answers them at once.
#pragma once

#include <cstddef>

namespace ladder::on_cpu {

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidDevice = 101,
  cudaErrorLaunchFailure = 719,
};
const char* cudaGetErrorString(cudaError_t error);
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

// ---- one device, the host itself -------------------------------------------------------------
struct cudaDeviceProp {
  char name[256];
};
enum cudaDeviceAttr {
  cudaDevAttrClockRate = 13,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device);

/// A fault of a kernel. From then on, every call that waits reports it.
void __trap();

// ---- memory of exact size, every byte 0xFF; null for 0 bytes, as with CUDA. There are as many
// bytes as LADDER_ON_CPU_MEMORY says ------------------------------------------------------------
cudaError_t cudaMemGetInfo(size_t* left, size_t* all);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaFreeHost(void* memory);
/// Whether p lies in what cudaMalloc or cudaMallocHost has given.
bool is_device_memory(const void* p);

// ---- streams: nothing is ever queued ---------------------------------------------------------
struct Stream;
using cudaStream_t = Stream*;
constexpr unsigned cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* out, const void* inp, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);

}  // namespace ladder::on_cpu
