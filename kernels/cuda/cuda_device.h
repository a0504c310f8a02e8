// CudaDevice: one GPU, used by one rank. It owns everything that CUDA hands out.
#pragma once

#include <algorithm>
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

/// @throws CheckError with the call and CUDA's reason, if the call failed
void check_cuda(cudaError_t status, const char* call);
void check_cuda(cublasStatus_t status, const char* call);

/// Owns an object that `Destroy` gives back: a stream, an event, a descriptor.
template <auto Destroy>
struct Destroyer {
  template <class T>
  void operator()(T* object) const noexcept {
    (void)Destroy(object);
  }
};
template <class Pointer, auto Destroy>
using Owner = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroyer<Destroy>>;

/// The numbers that decide how a product is computed: see kernels/cuda/matmul.cu.
using MatmulKey = std::array<int64_t, 12>;

/// A GPU, two streams of work on it, and cuBLASLt. One thread uses it: the thread that opened it,
/// or one that has called use_here(). CUDA assumes GPU 0 in every other thread.
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

  /// The stream where kernels, fills and copies are queued.
  cudaStream_t compute() const { return compute_.get(); }
  /// A stream for work beside them. kernels/ itself does not use it.
  cudaStream_t communication() const { return communication_.get(); }
  cublasLtHandle_t blas() const { return blas_.get(); }

  /// Whether its tensor cores multiply FP8: true from compute capability 8.9 on.
  bool fp8_units() const { return fp8_units_; }
  /// Whether to use these tensor cores, for comparisons.
  void use_fp8_units(bool used) { fp8_units_ = used && has_fp8_units_; }

  /// Whether expert_rows has been queued and no product of experts has waited for its offsets yet.
  /// Other waits do not count: one of a thread that communicates may have begun before expert_rows.
  bool host_lacks_offsets = false;

  /// 8 bytes that all blocks of one kernel add to (fp8_codes.h); 0 between kernels of the compute
  /// stream.
  void* joint() const { return joint_.get(); }

  /// Whether it has the instructions of Hopper: compute capability 9.0.
  bool hopper() const { return hopper_; }
  /// Whether to use these instructions, for comparisons.
  void use_hopper(bool used) { hopper_ = used && is_hopper_; }
  /// The most shared memory that a block can have.
  int64_t max_shared_bytes() const { return max_shared_bytes_; }
  /// As if a block could have at most `bytes`, for comparisons.
  void limit_shared(int64_t bytes) { max_shared_bytes_ = std::min(bytes, has_shared_bytes_); }

  /// The algorithms chosen so far, one for each product. Each is chosen once, so bits repeat.
  std::map<MatmulKey, cublasLtMatmulAlgo_t>& matmul_algorithms() { return matmul_algorithms_; }

 private:
  int index_;
  std::string name_;
  int64_t has_shared_bytes_ = 0, max_shared_bytes_ = 0;
  bool has_fp8_units_ = false, fp8_units_ = false;
  bool is_hopper_ = false, hopper_ = false;
  Owner<cudaStream_t, cudaStreamDestroy> compute_;
  Owner<cudaStream_t, cudaStreamDestroy> communication_;
  Owner<cublasLtHandle_t, cublasLtDestroy> blas_;
  Owner<void*, cudaFree> joint_;
  std::map<MatmulKey, cublasLtMatmulAlgo_t> matmul_algorithms_;
};

/// The device on which ctx queues its kernels. @throws CheckError if ctx has no device of this kind
CudaDevice& device_of(const Ctx& ctx);

}  // namespace ladder::LADDER_CUDA

/// CHECK_CUDA(cudaMemcpyAsync(...)): throws CheckError if the call fails.
#define CHECK_CUDA(call) ::ladder::LADDER_CUDA::check_cuda(call, #call)
