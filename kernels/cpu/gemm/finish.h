// How the finished sums of a tile reach C.
#pragma once

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/simd.h"

namespace ladder {

/// Where a finished tile goes: its corner of C, and how much of it lies inside.
struct Corner {
  const Product& p;
  int64_t m, n;
  int64_t rows, cols;
};

/// Whether C is stored past the caches. That pays for a large C that is not read before it is
/// written, nor soon after. (If a model has products of kLarge bytes, the caches do not hold all
/// that it uses anyway.)
inline bool goes_past_caches(const Product& p) {
  constexpr int64_t kLarge = 2 << 20;
  return p.for_later && p.into == Into::Write && p.c_dtype == Dtype::F32 &&
         p.M * p.N * size_of(Dtype::F32) >= kLarge &&
         rows_are_vectors(p.c, p.stride_c, size_of(Dtype::F32));
}

/// What happens to a finished sum of a tile on its way to C.
template <class T>
class Finish {
 public:
  explicit Finish(const Corner& to)
      : c_(static_cast<T*>(to.p.c) + to.m * to.p.stride_c + to.n),
        stride_(to.p.stride_c),
        bias_(to.p.bias ? static_cast<const T*>(to.p.bias) + to.n : nullptr),
        factor_(to.p.factor),
        add_(to.p.into == Into::Add),
        past_caches_(goes_past_caches(to.p)) {}

  /// Whether the sum is only rounded.
  bool plain() const { return factor_ == 1 && !bias_ && !add_; }
  /// Whether whole vectors are stored past the caches.
  bool past_caches() const { return past_caches_; }
  T* at(int64_t i, int64_t col) const { return c_ + i * stride_ + col; }

  /// The value for C that the sum at row i, column col gives.
  template <class Io>
  HWY_INLINE Vec finished(Vec sum, int64_t i, int64_t col, Io io) const {
    if (factor_ != 1) sum = hn::Mul(sum, broadcast(factor_));
    if (bias_) sum = hn::Add(sum, io.load(bias_ + col));
    if (add_) sum = hn::Add(io.load(at(i, col)), sum);
    return sum;
  }
  /// Writes that value to C.
  template <class Io>
  HWY_INLINE void operator()(Vec sum, int64_t i, int64_t col, Io io) const {
    io.store(finished(sum, i, col, io), at(i, col));
  }

 private:
  T* c_;
  int64_t stride_;
  const T* bias_;
  float factor_;
  bool add_, past_caches_;
};

/// Calls f(finish) with the Finish of C's dtype.
template <class F>
HWY_INLINE void with_finish(const Corner& to, F&& f) {
  switch (to.p.c_dtype) {
    case Dtype::BF16: return f(Finish<Bf16>(to));
    case Dtype::F16: return f(Finish<F16>(to));
    default: return f(Finish<float>(to));
  }
}

}  // namespace ladder
