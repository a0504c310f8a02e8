// Two neighbors of a narrow format as one word, which is what the BF16 instructions multiply.
#pragma once

#include <bit>

#include "kernels/cpu/vec.h"

namespace ladder {

/// Two neighbors in memory that become one word. Every T is exactly a BF16: as a float, its lower
/// half has no bits set.
template <class T>
struct Pair {
  T first, second;
};

template <class D>
HWY_INLINE hn::Vec<D> join_pairs(D d, hn::Vec<D> first, hn::Vec<D> second) {
  const hn::RebindToUnsigned<D> words;
  return hn::Or(first, hn::BitCast(d, hn::ShiftRight<16>(hn::BitCast(words, second))));
}
inline float join_pairs(float first, float second) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(first) |
                              std::bit_cast<uint32_t>(second) >> 16);
}

template <class T>
float value_of(Pair<T> pair) {
  return join_pairs(value_of(pair.first), value_of(pair.second));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Pair<Bf16>* p) {
  const hn::RebindToUnsigned<D> words;
  const auto pairs = hn::LoadU(words, reinterpret_cast<const uint32_t*>(p));
  return hn::BitCast(d, hn::RotateRight<16>(pairs));
}
template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const Pair<T>* p) {
  static_assert(sizeof(T) == 1);
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<uint16_t, D> both;
  const auto codes = hn::PromoteTo(words, hn::LoadU(both, reinterpret_cast<const uint16_t*>(p)));
  return join_pairs(d, widen_codes<T>(d, hn::And(codes, hn::Set(words, 0xFF))),
                    widen_codes<T>(d, hn::ShiftRight<8>(codes)));
}

}  // namespace ladder
