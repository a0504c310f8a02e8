// Tensors as device code uses them: elements have CUDA's types, and are read as floats, many at a
// time.
#pragma once

#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <numbers>
#include <type_traits>

#include "kernels/narrow.h"
#include "kernels/tensor.h"
#include "ptx.h"

namespace ladder {

template <>
inline constexpr Dtype dtype_of<__nv_bfloat16> = Dtype::BF16;
template <>
inline constexpr Dtype dtype_of<__half> = Dtype::F16;

namespace LADDER_CUDA {

/// Typed pointer to the first element, for kernels; null if the tensor is null.
template <class T>
T* device_data(const Tensor& tensor) {
  if (!tensor) return nullptr;
  CHECK(tensor.dtype == dtype_of<T>, "tensor {} read as another dtype", to_string(tensor.shape));
  CHECK(tensor.place != Place::Host, "tensor {} of the host read by a device",
        to_string(tensor.shape));
  return static_cast<T*>(tensor.ptr);
}

/// exp(x) = 2^(kLog2e x): a GPU has an instruction for powers of two.
constexpr float kLog2e = std::numbers::log2e_v<float>;

/// Passes a type to a lambda.
template <class T>
struct Type {};

/// Calls f with the element type of activations: float, __nv_bfloat16 or __half.
///     dispatch(inp.dtype, [&]<class T>(Type<T>) { ... device_data<T>(inp) ... });
template <class F>
void dispatch(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::F32: return f(Type<float>{});
    case Dtype::BF16: return f(Type<__nv_bfloat16>{});
    case Dtype::F16: return f(Type<__half>{});
    default: CHECK(false, "cuda computes on F32, BF16 and F16");
  }
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }

/// Rounds to nearest, ties to even.
template <class T>
__device__ T from_float(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16_rn(x);
  else if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(x);
  else
    return x;
}

/// N neighboring elements as floats, whatever their type in memory.
template <int N>
struct Floats {
  float at[N];
};

/// How many elements of type T a thread moves at once: 16 bytes.
template <class T>
constexpr int kWidth = 16 / static_cast<int>(sizeof(T));

/// The type that the hardware moves in one access of kBytes.
template <int kBytes>
using Word =
    std::conditional_t<kBytes % 16 == 0, uint4,
                       std::conditional_t<kBytes % 8 == 0, uint2,
                                          std::conditional_t<kBytes % 4 == 0, uint32_t, uint16_t>>>;

/// N neighboring elements in the form that they have in memory, at most 16 bytes. It takes fewer
/// registers than Floats.
template <int N, class T>
class Packed {
 public:
  Packed() = default;
  __device__ explicit Packed(const T* from) : word_(*reinterpret_cast<const W*>(from)) {}
  __device__ Floats<N> wide() const {
    T part[N];
    std::memcpy(part, &word_, sizeof(W));
    Floats<N> x;
#pragma unroll
    for (int i = 0; i < N; ++i) x.at[i] = to_float(part[i]);
    return x;
  }
  /// Keeps the compiler from holding the floats that wide() gave: the next wide() converts again.
  /// Floats take more registers than the elements do.
  __device__ void forget_wide() {
    uint32_t words[(sizeof(W) + 3) / 4];
    std::memcpy(words, &word_, sizeof(W));
#pragma unroll
    for (uint32_t& word : words) forget(word);
    std::memcpy(&word_, words, sizeof(W));
  }

 private:
  using W = Word<N * sizeof(T)>;
  static_assert(sizeof(W) == N * sizeof(T));
  W word_;
};

/// from[0..N), in accesses as wide as N allows, at most 16 bytes. `from` must be aligned to them.
template <int N, class T>
__device__ Floats<N> load(const T* from) {
  constexpr int kPerWord = sizeof(Word<N * sizeof(T)>) / sizeof(T);
  Floats<N> x;
#pragma unroll
  for (int i = 0; i < N; i += kPerWord) {
    const Floats<kPerWord> part = Packed<kPerWord, T>(from + i).wide();
#pragma unroll
    for (int j = 0; j < kPerWord; ++j) x.at[i + j] = part.at[j];
  }
  return x;
}

/// from[i..i+N). Without an array it is -0, which changes no number that it is added to.
template <int N, class T>
__device__ Floats<N> load_or_nothing(const T* from, int64_t i) {
  if (from) return load<N>(from + i);
  Floats<N> x;
#pragma unroll
  for (int j = 0; j < N; ++j) x.at[j] = -0.0f;
  return x;
}

/// to[0..N) = x, rounded. `to` must be aligned as for load().
template <int N, class T>
__device__ void store(T* to, const Floats<N>& x) {
  using W = Word<N * sizeof(T)>;
  constexpr int kPerWord = sizeof(W) / sizeof(T);
#pragma unroll
  for (int i = 0; i < N; i += kPerWord) {
    T part[kPerWord];
#pragma unroll
    for (int j = 0; j < kPerWord; ++j) part[j] = from_float<T>(x.at[i + j]);
    W word;
    std::memcpy(&word, part, sizeof(W));
    *reinterpret_cast<W*>(to + i) = word;
  }
}

}  // namespace LADDER_CUDA
}  // namespace ladder
