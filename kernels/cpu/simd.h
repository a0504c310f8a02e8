// Walking over arrays one vector at a time with masked tails, and the exponential function. All of
// kernels/cpu is written with these.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/vec.h"

namespace ladder {

/// Loads and stores a whole vector. Part, below, has the same functions for the end of an array.
struct Whole {
  template <class T>
  HWY_INLINE Vec load(const T* p) const {
    return ladder::load(p);
  }
  template <class T>
  HWY_INLINE Vec load_or(Vec, const T* p) const {
    return ladder::load(p);
  }
  template <class T>
  HWY_INLINE void store(Vec v, T* p) const {
    ladder::store(v, p);
  }
  HWY_INLINE Vec only(Vec v) const { return v; }
  /// Asks for the memory at p (prefetches it), which is to be read a little later.
  template <class T>
  static HWY_INLINE void ask(const T* p) {
    __builtin_prefetch(p);
  }
};

/// A Whole that stores floats and BF16 past the caches (non-temporal, or streaming, stores).
/// Addresses must be multiples of kLanes elements. A plain store would first read the line that it
/// overwrites.
struct PastCaches : Whole {
  using Whole::store;
  HWY_INLINE void store(Vec v, float* p) const { hn::Stream(v, kVec, p); }
  HWY_INLINE void store(Vec v, Bf16* p) const {
    hn::Stream(bf16_codes(v), kHalves, reinterpret_cast<uint16_t*>(p));
  }
  /// Into L2. If the output does not fit the caches, the inputs do not, either. L1 is busy with
  /// current loads, and can wait for fewer lines of memory at a time.
  template <class T>
  static HWY_INLINE void ask(const T* p) {
    __builtin_prefetch(p, 0, 2);
  }
};

/// Whether PastCaches can store rows whose elements have `bytes` bytes and which lie `stride`
/// elements apart.
inline bool rows_are_vectors(const void* rows, int64_t stride, int64_t bytes) {
  const auto vector = static_cast<uintptr_t>(kLanes * bytes);
  return std::bit_cast<uintptr_t>(rows) % vector == 0 && stride % kLanes == 0;
}

/// Loads and stores the first `count` lanes. The other lanes read as zero and are not written. The
/// arithmetic in between is that of a whole vector, so the result of an element does not depend on
/// whether it lies in the tail of an array.
class Part {
 public:
  explicit Part(int64_t count)
      : count_(static_cast<size_t>(count)), mask_(hn::FirstN(kVec, count_)) {}

  int64_t count() const { return static_cast<int64_t>(count_); }
  template <class T>
  HWY_INLINE Vec load(const T* p) const {
    if constexpr (kMasked<T>) {
      return hn::MaskedLoad(mask_, kVec, p);
    } else {
      T whole[kLanes] = {};
      std::memcpy(whole, p, count_ * sizeof(T));
      return ladder::load(whole);
    }
  }
  template <class T>
  HWY_INLINE void store(Vec v, T* p) const {
    if constexpr (kMasked<T>) {
      hn::BlendedStore(v, mask_, kVec, p);
    } else {
      T whole[kLanes];
      ladder::store(v, whole);
      std::memcpy(p, whole, count_ * sizeof(T));
    }
  }
  /// p's elements, and `other` in the lanes past the tail.
  template <class T>
  HWY_INLINE Vec load_or(Vec other, const T* p) const {
    return hn::IfThenElse(mask_, load(p), other);
  }
  /// v, with zero past the tail.
  HWY_INLINE Vec only(Vec v) const { return hn::IfThenElseZero(mask_, v); }

 private:
  /// Whether a masked instruction leaves the memory of other lanes alone. NEON has none that does,
  /// and no processor has one for narrow elements. Those are loaded and stored through a whole
  /// vector of memory.
  template <class T>
  static constexpr bool kMasked = std::is_same_v<T, float>&& HWY_ARCH_X86;

  size_t count_;
  hn::Mask<Lanes> mask_;
};

/// Calls f(i, io) for each vector [i, i + kLanes) of [begin, end). io is a Whole (or a PastCaches),
/// or a Part for the tail.
template <class Wide = Whole, class F>
HWY_INLINE void for_vectors(int64_t begin, int64_t end, F&& f) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) f(i, Wide{});
  if (i < end) f(i, Part(end - i));
}

/// N vectors that go through the same arithmetic side by side. With one vector the processor would
/// wait: each operation needs the result of the one before.
template <size_t N>
using Vecs = std::array<Vec, N>;

/// {f(0), ..., f(N - 1)}
template <size_t N, class F>
HWY_INLINE Vecs<N> each(F&& f) {
  Vecs<N> results;
#pragma GCC unroll 8
  for (size_t i = 0; i < N; ++i) results[i] = f(i);
  return results;
}

/// An exponent of two as k + r, where k is a whole number and |r| <= 1/2.
template <size_t N>
struct Exponents {
  Vecs<N> k_bits;  ///< k + 127 in the low bits of each float
  Vecs<N> r;
};

/// x y as k + r, for |x y| < 127. Only r is rounded, and once; the product is not.
template <size_t N>
HWY_INLINE Exponents<N> cut_product(const Vecs<N>& x, const Vecs<N>& y) {
  // In so large a number the last bit stands for one. So the sum is rounded to a whole number.
  const Vec large = broadcast(12582912.0f + 127);  // 1.5 2^23
  const auto k_bits = each<N>([&](size_t i) { return hn::MulAdd(x[i], y[i], large); });
  return {k_bits,
          each<N>([&](size_t i) { return hn::MulSub(x[i], y[i], hn::Sub(k_bits[i], large)); })};
}

/// 2^(k + r). 2^r is a polynomial, fitted to make the largest relative error small (3e-9).
template <size_t N>
HWY_INLINE Vecs<N> exp2(const Exponents<N>& exponents) {
  const auto& [k_bits, r] = exponents;
  Vecs<N> power;
  power.fill(broadcast(1.532647148e-04f));
  for (const float c : {1.339080627e-03f, 9.618505836e-03f, 5.550359935e-02f, 2.402264774e-01f,
                        6.931471825e-01f, 1.0f})
    power = each<N>([&](size_t i) { return hn::MulAdd(power[i], r[i], broadcast(c)); });
  return each<N>([&](size_t i) {
    // 2^k: these bits, moved to where a float has its exponent.
    const hn::RebindToUnsigned<Lanes> words;
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(words, k_bits[i]));
    return hn::Mul(power[i], hn::BitCast(kVec, exponent));
  });
}

/// e^x = 2^(x log2 e), to about one ulp. Below -87.33 it is 0; from 88.02 on it is e^88.02. NaN
/// gives NaN.
template <size_t N>
HWY_INLINE Vecs<N> exp(const Vecs<N>& x) {
  const Vec low = broadcast(-87.33654f);
  // The constants come first, so that a NaN in x passes.
  const auto bounded =
      each<N>([&](size_t i) { return larger_lanes(low, smaller_lanes(broadcast(88.02f), x[i])); });
  // log2 e in two parts: rounded to a float, and the rest. Times 87, the rest would be noticed.
  Vecs<N> log2_e;
  log2_e.fill(broadcast(1.44269502f));
  auto exponents = cut_product<N>(bounded, log2_e);
  exponents.r = each<N>([&](size_t i) {
    return hn::MulAdd(bounded[i], broadcast(1.925963033e-08f), exponents.r[i]);
  });
  const auto power = exp2<N>(exponents);
  return each<N>([&](size_t i) { return hn::IfThenZeroElse(hn::Lt(x[i], low), power[i]); });
}
HWY_INLINE Vec exp(Vec x) { return exp<1>({x})[0]; }

}  // namespace ladder
