// Squared norms as exact integers (kernels/limbs.h), and the clipping that uses them.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/table.h"
#include "kernels/limbs.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

using Limbs = std::array<int64_t, kLimbs>;
using Doubles = hn::CappedTag<double, 4>;

/// The lanes of v joined as a tree: lane i with lane i + half.
template <class D>
HWY_INLINE double join_lanes(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(d) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return join_lanes(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// Squares of 16 floats, which are exact in double, joined as a tree.
HWY_INLINE double leaf_of(const float* x) {
  const Doubles d;
  const hn::Rebind<float, Doubles> floats;
  constexpr size_t kParts = kNormLeaf / hn::MaxLanes(d);
  std::array<hn::Vec<Doubles>, kParts> part;
  for (size_t i = 0; i < kParts; ++i) {
    const auto v = hn::PromoteTo(d, hn::LoadU(floats, x + i * hn::MaxLanes(d)));
    part[i] = hn::Mul(v, v);
  }
  for (size_t half = kParts / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) part[i] = hn::Add(part[i], part[i + half]);
  return join_lanes(d, part[0]);
}

/// add_to_limbs with the bits of the double taken apart as integers: the same limbs, sooner.
HWY_INLINE void add_leaf(Limbs& limbs, double leaf) {
  constexpr int kMantissaBits = 52;
  constexpr int kBias = 1023;
  const auto bits = std::bit_cast<uint64_t>(leaf);
  const int exponent = static_cast<int>(bits >> kMantissaBits);  // a sum of squares has no sign
  if (exponent >= 2 * kBias + 1 || leaf < 0) {
    ++limbs[kNonfiniteLimb];
    return;
  }
  // leaf = mantissa 2^(exponent - 1075). Subnormal doubles lie far below 2^-80.
  uint64_t mantissa = (bits & ((uint64_t{1} << kMantissaBits) - 1)) | uint64_t{1} << kMantissaBits;
  int place = exponent - kBias - kMantissaBits + kFractionBits;
  if (place < 0) {
    mantissa = place <= -64 ? 0 : mantissa >> -place;
    place = 0;
  }
  const int limb = place / kLimbBits;
  const int shift = place % kLimbBits;
  const uint64_t low = mantissa << shift;
  const uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
  limbs[static_cast<size_t>(limb)] += static_cast<int64_t>(low & 0xFFFFFFFFu);
  if (mantissa == 0) return;
  if (low >> kLimbBits) limbs[static_cast<size_t>(limb) + 1] += static_cast<int64_t>(low >> 32);
  if (high) limbs[static_cast<size_t>(limb) + 2] += static_cast<int64_t>(high);
}

/// Adds x[begin, end) to the limbs; begin is a multiple of the leaf.
void add_range(Limbs& limbs, const float* x, Range range) {
  int64_t i = range.begin;
  for (; i + kNormLeaf <= range.end; i += kNormLeaf) add_leaf(limbs, leaf_of(x + i));
  if (i == range.end) return;
  std::array<float, kNormLeaf> tail{};
  std::copy(x + i, x + range.end, tail.begin());
  add_leaf(limbs, leaf_of(tail.data()));
}

void add_limbs(int64_t* to, const Limbs& limbs) {
  for (size_t i = 0; i < limbs.size(); ++i) to[i] += limbs[i];
}

}  // namespace

void squared_norm(const Ctx& ctx, Tensor limbs, Tensor x) {
  const auto [R, N] = check_squared_norm(limbs, x);
  const float* from = x.data<float>();
  int64_t* to = limbs.data<int64_t>();
  if (R >= ctx.threads) {
    parallel_for(ctx, R, 1, N, [&, N = N](Range rows) {
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        Limbs sum{};
        add_range(sum, from + row * N, {0, N});
        add_limbs(to + row * kLimbs, sum);
      }
    });
    return;
  }
  for (int64_t row = 0; row < R; ++row) {  // few long rows: each is cut among the threads
    parallel_for(ctx, N, kNormLeaf, 1, [&, N = N](Range range) {
      Limbs sum{};
      add_range(sum, from + row * N, range);
#pragma omp critical(ladder_limbs)
      add_limbs(to + row * kLimbs, sum);  // integers: the order does not matter
    });
  }
}

void adaptive_clip(const Ctx& ctx, Tensor grad, Tensor grad_limbs, Tensor weight_limbs,
                   float clip) {
  const auto [R, N] = check_adaptive_clip(grad, grad_limbs, weight_limbs);
  float* g = grad.data<float>();
  const int64_t* g_limbs = grad_limbs.data<int64_t>();
  const int64_t* w_limbs = weight_limbs.data<int64_t>();
  parallel_for(ctx, R, 1, N, [&, N = N](Range rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const double weight = std::max(std::sqrt(limbs_value(w_limbs + row * kLimbs)), 1e-3);
      const double norm = std::max(std::sqrt(limbs_value(g_limbs + row * kLimbs)), 1e-6);
      const auto factor = static_cast<float>(clip * weight / norm);
      if (factor >= 1) continue;
      for_vectors(row * N, (row + 1) * N, [&](int64_t i, auto io) {
        io.store(hn::Mul(io.load(g + i), broadcast(factor)), g + i);
      });
    }
  });
}

}  // namespace ladder::cpu
