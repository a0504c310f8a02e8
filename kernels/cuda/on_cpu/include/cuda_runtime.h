// Stand-in for CUDA's header, for a C++ compiler. It has what the kernels here, the labs and the
// exercises of docs/cuda.md use.
//
// Everything is in ladder::on_cpu, so a program may also contain the real library.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/on_cpu/block.h"
#include "kernels/cuda/on_cpu/runtime.h"
#include "kernels/cuda/on_cpu/shared.h"

#define __global__
#define __device__
#define __host__
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
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

// ---- who am I: set whenever another thread goes on -------------------------------------------
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

// ---- barriers --------------------------------------------------------------------------------
inline void __syncthreads(Where where = Where::current()) { meet_block(where); }
void __syncwarp(unsigned mask = 0xFFFFFFFF, Where where = Where::current());

// ---- numbers -----------------------------------------------------------------------------------
template <class A, class B>
constexpr auto min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
constexpr auto max(A a, B b) {
  return a < b ? b : a;
}
// As CUDA's: of a number and NaN, the number.
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }

// ---- bits --------------------------------------------------------------------------------------
/// Byte i of the result is one of the eight bytes of y:x, chosen by nibble i of `select`.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned select) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> 8 * (select >> 4 * i & 7) & 0xFF) << 8 * i;
  return result;
}
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }

// ---- votes and shuffles ----------------------------------------------------------------------
unsigned __ballot_sync(unsigned mask, bool vote, Where where = Where::current());
inline bool __any_sync(unsigned mask, bool vote, Where where = Where::current()) {
  return __ballot_sync(mask, vote, where) != 0;
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

// A lane whose partner would be outside of its group of `width` lanes keeps its own value.
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = kLanes,
                  Where where = Where::current()) {
  const int lane = lane_of_thread(), from = lane ^ bits;
  const bool inside = from < (lane | (width - 1)) + 1;
  return shuffled("__shfl_xor_sync", mask, value, inside ? from : lane, where);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = kLanes,
              Where where = Where::current()) {
  const int from = (lane_of_thread() & ~(width - 1)) | (lane & (width - 1));
  return shuffled("__shfl_sync", mask, value, from, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned step, int width = kLanes,
                 Where where = Where::current()) {
  const int lane = lane_of_thread(), from = lane - static_cast<int>(step);
  const bool inside = from >= (lane & ~(width - 1));
  return shuffled("__shfl_up_sync", mask, value, inside ? from : lane, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned step, int width = kLanes,
                   Where where = Where::current()) {
  const int lane = lane_of_thread(), from = lane + static_cast<int>(step);
  const bool inside = from <= (lane | (width - 1));
  return shuffled("__shfl_down_sync", mask, value, inside ? from : lane, where);
}

// ---- atomics: no other thread runs meanwhile; CUDA adds to these types -----------------------
/// Not watched as a read and a write: it tells of itself.
#define LADDER_ATOMIC __attribute__((no_sanitize("thread")))
void tell_of_atomic(const void* at, int64_t bytes, bool is_float);

template <class T>
requires(std::same_as<T, int> || std::same_as<T, unsigned> || std::same_as<T, unsigned long long> ||
         std::same_as<T, float> || std::same_as<T, double>) LADDER_ATOMIC T
    atomicAdd(T* at, T value) {
  tell_of_atomic(at, sizeof(T), std::floating_point<T>);
  const T old = *at;
  *at = old + value;
  return old;
}

LADDER_ATOMIC inline unsigned atomicMax(unsigned* at, unsigned value) {
  tell_of_atomic(at, sizeof(unsigned), false);
  const unsigned old = *at;
  if (value > old) *at = value;
  return old;
}
inline void __threadfence() {}

}  // namespace ladder::on_cpu

using namespace ladder::on_cpu;  // NOLINT: CUDA's names are global
