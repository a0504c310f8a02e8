// Stand-in for CUDA's header: what the kernels here use of it, for a C++ compiler.
//
// Everything lies in ladder::on_cpu, so that a program may also contain the real library.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/on_cpu/block.h"
#include "kernels/cuda/on_cpu/runtime.h"
#include "kernels/cuda/on_cpu/shared.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

namespace ladder::on_cpu {

// ---- vectors ---------------------------------------------------------------------------------
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct uint3 {
  uint32_t x, y, z;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(16) int4 {
  int32_t x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct dim3 {
  uint32_t x = 1, y = 1, z = 1;
};
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// ---- who am I: set whenever another thread goes on -------------------------------------------
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

// ---- barriers --------------------------------------------------------------------------------
inline void __syncthreads(Where where = Where::current()) { meet_block(where); }
void __syncwarp(unsigned mask = 0xFFFFFFFF, Where where = Where::current());
inline void __threadfence() {}
inline void __threadfence_block() {}

// ---- votes and shuffles ----------------------------------------------------------------------
unsigned __ballot_sync(unsigned mask, bool vote, Where where = Where::current());
inline bool __any_sync(unsigned mask, bool vote, Where where = Where::current()) {
  return __ballot_sync(mask, vote, where) != 0;
}
inline bool __all_sync(unsigned mask, bool vote, Where where = Where::current()) {
  return __ballot_sync(mask, vote, where) == mask;
}

/// What lane `from` passes as `bits`.
uint64_t shuffle(const char* name, unsigned mask, uint64_t bits, int from, Where where);

/// shuffle() for any type of 1 to 8 bytes.
template <class T>
T shuffled(const char* name, unsigned mask, const T& value, int from, Where where) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(name, mask, bits, from, where);
  T result;
  std::memcpy(&result, &bits, sizeof(T));
  return result;
}

// A lane whose partner would lie outside of its group of `width` lanes keeps its own value.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = kLanes,
              Where where = Where::current()) {
  const int group = lane_of_thread() & ~(width - 1);
  return shuffled("__shfl_sync", mask, value, group | (source & (width - 1)), where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = kLanes,
                  Where where = Where::current()) {
  const int lane = lane_of_thread(), from = lane ^ bits;
  const bool inside = from < (lane | (width - 1)) + 1;
  return shuffled("__shfl_xor_sync", mask, value, inside ? from : lane, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned step, int width = kLanes,
                   Where where = Where::current()) {
  const int lane = lane_of_thread(), from = lane + static_cast<int>(step);
  const bool inside = from <= (lane | (width - 1));
  return shuffled("__shfl_down_sync", mask, value, inside ? from : lane, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned step, int width = kLanes,
                 Where where = Where::current()) {
  const int lane = lane_of_thread(), from = lane - static_cast<int>(step);
  const bool inside = from >= (lane & ~(width - 1));
  return shuffled("__shfl_up_sync", mask, value, inside ? from : lane, where);
}

// ---- atomics: no other thread runs meanwhile -------------------------------------------------
template <class T>
T atomicAdd(T* at, T value) {
  const T old = *at;
  *at = old + value;
  return old;
}
template <class T>
T atomicMax(T* at, T value) {
  const T old = *at;
  *at = std::max(old, value);
  return old;
}
template <class T>
T atomicMin(T* at, T value) {
  const T old = *at;
  *at = std::min(old, value);
  return old;
}
template <class T>
T atomicOr(T* at, T value) {
  const T old = *at;
  *at = old | value;
  return old;
}
template <class T>
T atomicExch(T* at, T value) {
  const T old = *at;
  *at = value;
  return old;
}
template <class T>
T atomicCAS(T* at, T expected, T value) {
  const T old = *at;
  if (old == expected) *at = value;
  return old;
}

// ---- arithmetic ------------------------------------------------------------------------------
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline int32_t __float_as_int(float x) { return std::bit_cast<int32_t>(x); }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int32_t bits) { return std::bit_cast<float>(bits); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
constexpr T min(T a, T b) {
  return std::min(a, b);
}
template <class T>
constexpr T max(T a, T b) {
  return std::max(a, b);
}
[[noreturn]] inline void __trap() { fail("__trap()"); }

}  // namespace ladder::on_cpu

using namespace ladder::on_cpu;  // NOLINT: CUDA's names are global
