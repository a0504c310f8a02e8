// Vectors of floats, as wide as the machine has them. Elements of every format become such vectors:
// narrow ones are widened when they are loaded, and rounded when they are stored.
#pragma once

#include <cstdint>

#include <hwy/highway.h>

#include "kernels/narrow.h"

namespace ladder {

namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::ScalableTag<float>;
using Vec = hn::Vec<Lanes>;
constexpr Lanes kVec;
// Multiply-adds must round once.
static_assert(HWY_ARCH_ARM_A64 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2),
              "the cpu kernels need AVX2 and FMA, or NEON of arm64");
/// Floats in a vector: 4 with NEON, 8 with AVX2, 16 with AVX-512.
constexpr int64_t kLanes = hn::MaxLanes(kVec);
/// Rows of a tile of sums that stays in registers; a tile is two vectors wide. AVX-512 has 32
/// registers, AVX2 16. NEON has 32, too, but compilers load a value of A for each row before they
/// multiply.
constexpr int64_t kRowsInRegisters = kLanes == 16 ? 12 : kLanes == 8 ? 6 : 8;

/// hn::MaxLanes(d) floats from p. D is Lanes, or a part of it.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* p) {
  return hn::LoadU(d, p);
}

/// A BF16 is the upper half of a float.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Bf16* p) {
  const hn::RebindToUnsigned<D> wide;
  const hn::Rebind<uint16_t, D> half;
  const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
}

/// widen() for codes in the low bits of words: the digits move to their place, then a product
/// repairs the exponent.
template <class Narrow, class D>
HWY_INLINE hn::Vec<D> widen_codes(D d, hn::Vec<hn::RebindToUnsigned<D>> code) {
  constexpr Format kFormat = Narrow::kFormat;
  constexpr uint32_t kSign = 1u << (kFormat.bits() - 1);
  const hn::RebindToUnsigned<D> wide;
  const auto sign = hn::ShiftLeft<32 - kFormat.bits()>(hn::And(code, hn::Set(wide, kSign)));
  const auto magnitude = hn::And(code, hn::Set(wide, kSign - 1));
  const auto digits = hn::BitCast(d, hn::ShiftLeft<23 - kFormat.mantissa_bits>(magnitude));
  const float power = std::bit_cast<float>(uint32_t{127 + 127 - kFormat.bias()} << 23);
  const auto value = hn::Mul(digits, hn::Set(d, power));
  const auto special = hn::Set(d, widen(kFormat, kFormat.first_special()));
  const auto nan = hn::Set(d, widen(kFormat, kFormat.nan()));
  const auto first = hn::Set(wide, kFormat.first_special());
  const auto number =
      hn::IfThenElse(hn::RebindMask(d, hn::Gt(first, magnitude)), value,
                     hn::IfThenElse(hn::RebindMask(d, hn::Eq(first, magnitude)), special, nan));
  return hn::Or(number, hn::BitCast(d, sign));
}

template <class Narrow, class D>
HWY_INLINE hn::Vec<D> load_digits(D d, const Narrow* p) {
  const hn::RebindToUnsigned<D> wide;
  const hn::Rebind<decltype(p->bits), D> codes;
  return widen_codes<Narrow>(d, hn::PromoteTo(wide, hn::LoadU(codes, &p->bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const F16* p) {
  const hn::Rebind<hwy::float16_t, D> half;
  return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(p)));
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const E4m3* p) {
  return load_digits(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const E5m2* p) {
  return load_digits(d, p);
}

template <class T>
HWY_INLINE Vec load(const T* p) {
  return load(kVec, p);
}

HWY_INLINE void store(Vec v, float* p) { hn::StoreU(v, kVec, p); }

/// The type in which a vector of 16-bit numbers is stored.
using Halves = hn::Rebind<uint16_t, Lanes>;
constexpr Halves kHalves;

/// Rounds to nearest even. NaN stays NaN.
HWY_INLINE hn::Vec<Halves> bf16_codes(Vec v) {
  const hn::RebindToUnsigned<Lanes> wide;
  const auto bits = hn::BitCast(wide, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(wide, 0x7FFF)), odd);
  const auto quiet = hn::Or(bits, hn::Set(wide, 0x400000));
  const auto code =
      hn::ShiftRight<16>(hn::IfThenElse(hn::RebindMask(wide, hn::IsNaN(v)), quiet, rounded));
  return hn::TruncateTo(kHalves, code);
}
HWY_INLINE void store(Vec v, Bf16* p) {
  hn::StoreU(bf16_codes(v), kHalves, reinterpret_cast<uint16_t*>(p));
}

/// The codes that narrow() gives for x: E4M3 or E5M2.
template <class Narrow>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<Lanes>> codes_of(Vec x) {
  constexpr Format kFormat = Narrow::kFormat;
  constexpr bool kSaturate = overflow_of(dtype_of<Narrow>) == Overflow::Saturate;
  constexpr int kDrop = 23 - kFormat.mantissa_bits;
  constexpr uint32_t kMissing = 127 - kFormat.bias();
  constexpr uint32_t kMagic = (kMissing + 1 + kDrop) << 23;
  const hn::RebindToUnsigned<Lanes> wide;
  const auto bits = hn::BitCast(wide, x);
  const auto sign = hn::ShiftLeft<kFormat.bits() - 1>(hn::ShiftRight<31>(bits));
  const auto a = hn::And(bits, hn::Set(wide, 0x7FFFFFFFu));
  // Below the smallest normal number the adder rounds. Above it, half of the last digit is added.
  const auto sum = hn::Add(hn::BitCast(kVec, a), hn::BitCast(kVec, hn::Set(wide, kMagic)));
  const auto small = hn::Sub(hn::BitCast(wide, sum), hn::Set(wide, kMagic));
  const auto odd = hn::And(hn::ShiftRight<kDrop>(a), hn::Set(wide, 1));
  const auto half = hn::Set(wide, (1u << (kDrop - 1)) - 1 - (kMissing << 23));
  const auto large = hn::ShiftRight<kDrop>(hn::Add(hn::Add(a, half), odd));
  const auto subnormal = hn::Lt(a, hn::Set(wide, (kMissing + 1) << 23));
  const auto code = hn::Min(hn::IfThenElse(subnormal, small, large),
                            hn::Set(wide, kFormat.first_special() - (kSaturate ? 1 : 0)));
  const auto nan = hn::Gt(a, hn::Set(wide, 0x7F800000u));
  return hn::Or(sign, hn::IfThenElse(nan, hn::Set(wide, kFormat.nan()), code));
}

HWY_INLINE void store(Vec v, F16* p) {
  const hn::Rebind<hwy::float16_t, Lanes> half;
  hn::StoreU(hn::DemoteTo(half, v), half, reinterpret_cast<hwy::float16_t*>(p));
}

/// The larger, or the smaller, of each lane. If one of the two is NaN, or both are zero, it is the
/// second. The instructions of x86 do this; those of arm64 return the number beside a NaN.
template <class V>
HWY_INLINE V larger_lanes(V a, V b) {
  if constexpr (HWY_ARCH_X86)
    return hn::Max(a, b);
  else
    return hn::IfThenElse(hn::Lt(b, a), a, b);
}
template <class V>
HWY_INLINE V smaller_lanes(V a, V b) {
  if constexpr (HWY_ARCH_X86)
    return hn::Min(a, b);
  else
    return hn::IfThenElse(hn::Lt(a, b), a, b);
}

HWY_INLINE Vec broadcast(float x) { return hn::Set(kVec, x); }
HWY_INLINE Vec zero() { return hn::Zero(kVec); }
/// What sums begin at: kNothing of kernels/tree.h.
HWY_INLINE Vec nothing() { return broadcast(-0.0f); }

}  // namespace ladder
