#include <algorithm>

#include "kernels/cuda/cuda_device.h"

namespace ladder::LADDER_CUDA {
namespace {

/// cudaStreamNonBlocking: does not wait for the default stream, which nobody uses.
cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

cublasLtHandle_t new_blas() {
  cublasLtHandle_t handle = nullptr;
  CHECK_CUDA(cublasLtCreate(&handle));
  return handle;
}

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  CHECK_CUDA(cudaDeviceGetAttribute(&value, which, index));
  return value;
}

/// What a call of CUDA gives for so many bytes. CUDA gives null for 0 bytes. Here null means that
/// memory is missing, so at least one byte is asked for.
template <class Call>
void* allocated(const char* name, int64_t bytes, const Call& call) {
  void* memory = nullptr;
  const cudaError_t status = call(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // null reports it; no later call must report it again
    return nullptr;
  }
  check_cuda(status, name);
  return memory;
}

}  // namespace

void check_cuda(cudaError_t status, const char* call) {
  CHECK(status == cudaSuccess, "{}: {}", call, cudaGetErrorString(status));
}

void check_cuda(cublasStatus_t status, const char* call) {
  CHECK(status == CUBLAS_STATUS_SUCCESS, "{}: {}", call, cublasLtGetStatusString(status));
}

CudaDevice::CudaDevice(int index) : index_(index) {
  CHECK(index >= 0 && index < device_count(), "device {} of {}", index, device_count());
  CudaDevice::use_here();
  cudaDeviceProp properties;
  CHECK_CUDA(cudaGetDeviceProperties(&properties, index));
  name_ = properties.name;
  has_shared_bytes_ = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
  max_shared_bytes_ = has_shared_bytes_;
  const int capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor, index) +
                         attribute(cudaDevAttrComputeCapabilityMinor, index);
  has_fp8_units_ = fp8_units_ = capability >= 89;
  is_hopper_ = hopper_ = capability == 90;
  compute_.reset(new_stream());
  communication_.reset(new_stream());
  blas_.reset(new_blas());
  constexpr int64_t kJoint = 8;
  joint_.reset(CudaDevice::allocate(kJoint));
  CHECK(joint_, "no memory on {}", name_);
  CudaDevice::fill(joint_.get(), 0, kJoint);
}

DeviceFacts CudaDevice::facts() const {
  size_t left = 0, all = 0;
  CHECK_CUDA(cudaMemGetInfo(&left, &all));
  return {.memory = static_cast<int64_t>(all),
          .memory_left = static_cast<int64_t>(left),
          .clock_mhz = attribute(cudaDevAttrClockRate, index_) / 1000};
}

void CudaDevice::use_here() { CHECK_CUDA(cudaSetDevice(index_)); }

void* CudaDevice::allocate(int64_t bytes) {
  return allocated("cudaMalloc", bytes, [](void** to, size_t n) { return cudaMalloc(to, n); });
}

void* CudaDevice::allocate_shared(int64_t bytes) {
  return allocated("cudaMallocHost", bytes,
                   [](void** to, size_t n) { return cudaMallocHost(to, n); });
}

void CudaDevice::free(void* memory) noexcept { (void)cudaFree(memory); }

void CudaDevice::free_shared(void* memory) noexcept { (void)cudaFreeHost(memory); }

void CudaDevice::fill(void* memory, uint8_t value, int64_t bytes) {
  CHECK_CUDA(cudaMemsetAsync(memory, value, static_cast<size_t>(bytes), compute()));
}

void CudaDevice::copy(void* out, const void* inp, int64_t bytes) {
  CHECK_CUDA(cudaMemcpyAsync(out, inp, static_cast<size_t>(bytes), cudaMemcpyDefault, compute()));
}

void CudaDevice::synchronize() { CHECK_CUDA(cudaStreamSynchronize(compute())); }

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

std::unique_ptr<Device> open_device(int index) { return std::make_unique<CudaDevice>(index); }

CudaDevice& device_of(const Ctx& ctx) {
  auto* device = dynamic_cast<CudaDevice*>(ctx.device);
  CHECK(device, "a kernel of CUDA without its device");
  return *device;
}

}  // namespace ladder::LADDER_CUDA
