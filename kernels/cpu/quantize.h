// kernels/quantize.h for vectors: the same codes and values, without a search.
#pragma once

#include <array>
#include <cstring>

#include "kernels/cpu/simd.h"
#include "kernels/quantize.h"

namespace ladder {

using Ints = hn::RebindToSigned<Lanes>;

template <bool HasSign>
inline constexpr QuantTable kQuantTable = make_quant_table(HasSign ? kSignedCode : kUnsignedCode);

/// quantize() for each lane.
template <bool HasSign>
HWY_INLINE hn::Vec<Ints> quantize(Vec x) {
  constexpr Ints kInts;
  const QuantTable& table = kQuantTable<HasSign>;
  const Vec magnitude = hn::IfThenElseZero(hn::Eq(x, x), hn::Abs(x));  // NaN gets code 0
  const auto top = hn::ShiftRight<QuantTable::kDrop>(hn::BitCast(kInts, magnitude));
  const auto known =
      hn::Min(hn::Max(top, hn::Set(kInts, QuantTable::kFirst)), hn::Set(kInts, QuantTable::kLast));
  const auto bucket = hn::Sub(known, hn::Set(kInts, QuantTable::kFirst));
  const auto lowest = hn::GatherIndex(kInts, table.lowest.data(), bucket);
  const Vec midpoint = hn::GatherIndex(kVec, table.midpoint.data(), lowest);
  const auto one = hn::Set(kInts, 1);
  const auto above = hn::RebindMask(kInts, hn::Lt(midpoint, magnitude));
  const auto code = hn::Add(lowest, hn::IfThenElseZero(above, one));
  const auto none = hn::Zero(kInts);
  if constexpr (HasSign) {
    const auto minus = hn::And(hn::RebindMask(kInts, hn::Lt(x, zero())), hn::Gt(code, none));
    return hn::Or(code, hn::IfThenElseZero(minus, hn::Set(kInts, 128)));
  } else {
    const auto positive = hn::RebindMask(kInts, hn::Gt(magnitude, zero()));
    return hn::Max(code, hn::IfThenElseZero(positive, one));
  }
}

/// A block on the stack. Elements past the end of the array are zero.
using QuantBlock = std::array<float, kQuantBlock>;

/// quantize_block() for the first `count` elements of x.
template <bool HasSign>
void quantize_block(uint8_t* codes, float& scale, const QuantBlock& x, int64_t count) {
  const hn::Rebind<uint8_t, Lanes> bytes;
  Vec largest = zero();
  for (int64_t i = 0; i < kQuantBlock; i += kLanes) {
    const Vec magnitude = hn::Abs(load(x.data() + i));
    largest = hn::IfThenElse(hn::Lt(largest, magnitude), magnitude, largest);  // NaN does not count
  }
  scale = hn::GetLane(hn::MaxOfLanes(kVec, largest));
  std::array<uint8_t, kQuantBlock> code;
  for (int64_t i = 0; i < kQuantBlock; i += kLanes)
    hn::StoreU(
        hn::DemoteTo(bytes, quantize<HasSign>(hn::Div(load(x.data() + i), broadcast(scale)))),
        bytes, code.data() + i);
  std::memcpy(codes, code.data(), static_cast<size_t>(count));
}

/// dequantize_block(). Elements past `count` are zero.
template <bool HasSign>
QuantBlock dequantize_block(const uint8_t* codes, float scale, int64_t count) {
  constexpr Ints kInts;
  const hn::Rebind<uint8_t, Lanes> bytes;
  const float* value = (HasSign ? kSignedCode : kUnsignedCode).value.data();
  std::array<uint8_t, kQuantBlock> code{};
  std::memcpy(code.data(), codes, static_cast<size_t>(count));
  QuantBlock x;
  for (int64_t i = 0; i < kQuantBlock; i += kLanes) {
    const auto index = hn::PromoteTo(kInts, hn::LoadU(bytes, code.data() + i));
    store(hn::Mul(hn::GatherIndex(kVec, value, index), broadcast(scale)), x.data() + i);
  }
  return x;
}

}  // namespace ladder
