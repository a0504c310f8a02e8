// Tests of communication are written once; on_threads.cpp and on_mpi.cpp run them on ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/comm/comm.h"
#include "common/comm/failure.h"
#include "common/comm/run_ranks.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/narrow.h"

namespace ladder::test {

/// Runs `body` on the rank counts of this backend: 1, 2, 3, 4, 5 and 8 threads, or the processes
/// that mpirun has started.
void on_ranks(const std::function<void(Comm&)>& body);

/// "self", "thread" or "mpi"
std::string expected_kind(int ranks);

/// How run_threads() fails. The line is empty if it does not.
inline Failure failure_of(int ranks, const RankBody& body,
                          std::chrono::milliseconds timeout = kTimeout) {
  try {
    run_threads(ranks, body, timeout);
  } catch (const RankFailed& e) {
    return e.failure();
  }
  return {"", 0};
}

inline const std::vector<Dtype> kSummed = {Dtype::F32, Dtype::F64, Dtype::BF16,
                                           Dtype::F16, Dtype::I32, Dtype::I64};
inline const std::vector<Dtype> kAll = {Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16, Dtype::I32,
                                        Dtype::I64, Dtype::U8,  Dtype::E4M3, Dtype::E5M2};
inline const std::vector<int64_t> kSizes = {0, 1, 7, 64, 1000};

/// Element i as a number; FP8 as its code.
inline double number_at(const Tensor& x, int64_t i) {
  switch (x.dtype) {
    case Dtype::F32: return x.data<float>()[i];
    case Dtype::F64: return x.data<double>()[i];
    case Dtype::I32: return x.data<int32_t>()[i];
    case Dtype::I64: return static_cast<double>(x.data<int64_t>()[i]);
    case Dtype::BF16: return value_of(x.data<Bf16>()[i]);
    case Dtype::F16: return value_of(x.data<F16>()[i]);
    default: return static_cast<const uint8_t*>(x.ptr)[i];
  }
}

inline void put(const Tensor& x, int64_t i, int value) {
  const auto bits = [&](const Format& format) {
    const float real = static_cast<float>(value);
    return static_cast<uint16_t>(narrow(format, real, Overflow::ToInfinity));
  };
  switch (x.dtype) {
    case Dtype::F32: x.data<float>()[i] = static_cast<float>(value); break;
    case Dtype::F64: x.data<double>()[i] = value; break;
    case Dtype::I32: x.data<int32_t>()[i] = value; break;
    case Dtype::I64: x.data<int64_t>()[i] = value; break;
    case Dtype::BF16: x.data<Bf16>()[i] = {bits(kBf16)}; break;
    case Dtype::F16: x.data<F16>()[i] = {bits(kF16)}; break;
    default: static_cast<uint8_t*>(x.ptr)[i] = static_cast<uint8_t>(value);
  }
}

/// Small integers, so that sums over 8 ranks are exact in every dtype (NVIDIA's nccl-tests do so).
inline int value(int rank, int64_t i) { return (rank + 1) * static_cast<int>(i % 5 + 1); }

/// sum over ranks of value(rank, i)
inline int sum(int ranks, int64_t i) {
  return ranks * (ranks + 1) / 2 * static_cast<int>(i % 5 + 1);
}

/// Tensors of one rank.
class Memory {
 public:
  Tensor make(Dtype dtype, int64_t n) { return arena_.alloc(Mem::Comm, "test", dtype, {n}); }
  /// Element i is value(rank, i).
  Tensor make(Dtype dtype, int64_t n, int rank) { return fill(make(dtype, n), rank); }
  static Tensor fill(Tensor x, int rank) {
    for (int64_t i = 0; i < x.size(); ++i) put(x, i, value(rank, i));
    return x;
  }
  Arena& arena() { return arena_; }

 private:
  Arena arena_;
};

inline Ctx ctx_of(const Kernels& kernels) {
  Ctx ctx;
  ctx.kernels = &kernels;
  return ctx;
}

/// Every element of x is what `expected(i)` says; reports the first that is not.
template <class F>
void expect_elements(const Tensor& x, F&& expected) {
  for (int64_t i = 0; i < x.size(); ++i) {
    if (number_at(x, i) == expected(i)) continue;
    ADD_FAILURE() << dtype_text(x.dtype) << " element " << i << " of " << x.size() << " is "
                  << number_at(x, i) << ", not " << expected(i);
    return;
  }
}

}  // namespace ladder::test
