// CudaDevice: one GPU as one rank uses it. Everything that CUDA hands out has an owner here.
#pragma once

#include <array>
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <map>
#include <memory>
#include <string>
#include <type_traits>

#include "kernels/context.h"
#include "kernels/cuda/backend.h"

namespace ladder::LADDER_CUDA {

/// @throws CheckError with the call and what CUDA says about it, if it failed
void check_cuda(cudaError_t status, const char* call);
void check_cuda(cublasStatus_t status, const char* call);

/// Owns what `Destroy` takes back: a stream, an event, a descriptor.
template <auto Destroy>
struct Destroyer {
  template <class T>
  void operator()(T* object) const noexcept {
    (void)Destroy(object);
  }
};
template <class Pointer, auto Destroy>
using Owner = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroyer<Destroy>>;

/// What decides how a product is computed: see kernels/cuda/matmul.cu.
using MatmulKey = std::array<int64_t, 12>;

/// A GPU, two streams of work on it, and cuBLASLt. Used by one thread: that which opened it, or one
/// that has called use_here(). CUDA takes every other thread to mean GPU 0.
class CudaDevice final : public Device {
 public:
  /// @throws CheckError if there is no such device
  explicit CudaDevice(int index);

  std::string name() const override { return name_; }
  DeviceFacts facts() const override;
  void use_here() override;
  void* allocate(int64_t bytes) override;
  void* allocate_shared(int64_t bytes) override;
  void free(void* memory) noexcept override;
  void free_shared(void* memory) noexcept override;
  void fill(void* memory, uint8_t value, int64_t bytes) override;
  void copy(void* out, const void* inp, int64_t bytes) override;
  void synchronize() override;

  /// Where kernels, fills and copies are queued.
  cudaStream_t compute() const { return compute_.get(); }
  /// For what runs beside them: nothing of kernels/ uses it.
  cudaStream_t communication() const { return communication_.get(); }
  cublasLtHandle_t blas() const { return blas_.get(); }

  /// Whether its tensor cores multiply FP8: from compute capability 8.9 on.
  bool fp8_units() const { return fp8_units_; }
  /// Leaves them unused, or not: to compare.
  void use_fp8_units(bool used) { fp8_units_ = used && has_fp8_units_; }

  /// 8 bytes, 0 between kernels of the compute stream, where the blocks of one kernel meet.
  void* joint() const { return joint_.get(); }

  /// 10 times the major plus the minor number of its compute capability: 90 is Hopper.
  int capability() const { return capability_; }
  /// The largest dynamic shared memory of a block.
  int64_t max_shared_bytes() const { return max_shared_bytes_; }

  /// The algorithm chosen for each product so far, so that it is chosen once and bits repeat.
  std::map<MatmulKey, cublasLtMatmulAlgo_t>& matmul_algorithms() { return matmul_algorithms_; }

 private:
  int index_;
  std::string name_;
  int capability_ = 0;
  int64_t max_shared_bytes_ = 0;
  bool has_fp8_units_ = false, fp8_units_ = false;
  Owner<cudaStream_t, cudaStreamDestroy> compute_;
  Owner<cudaStream_t, cudaStreamDestroy> communication_;
  Owner<cublasLtHandle_t, cublasLtDestroy> blas_;
  Owner<void*, cudaFree> joint_;
  std::map<MatmulKey, cublasLtMatmulAlgo_t> matmul_algorithms_;
};

/// The device that ctx queues its kernels on. @throws CheckError if it has none of this kind
CudaDevice& device_of(const Ctx& ctx);

}  // namespace ladder::LADDER_CUDA

/// CHECK_CUDA(cudaMemcpyAsync(...)): throws CheckError if the call fails.
#define CHECK_CUDA(call) ::ladder::LADDER_CUDA::check_cuda(call, #call)
