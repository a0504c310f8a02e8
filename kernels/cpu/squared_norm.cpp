// Squared norms as integers (kernels/limbs.h), and the adaptive clipping that uses them.
#include <array>
#include <bit>
#include <cmath>
#include <mutex>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/table.h"
#include "kernels/limbs.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

using Limbs = std::array<int64_t, kLimbs>;
using Doubles = hn::CappedTag<double, 4>;

/// The squares of 16 floats, which are exact in double, joined as a tree.
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
  return reduce_lanes(d, part[0], [](auto a, auto b) { return hn::Add(a, b); });
}

using Words = hn::CappedTag<uint64_t, 8>;
/// How many leaves are turned into limbs at a time.
constexpr int64_t kLeavesAtOnce = hn::MaxLanes(Words{});

/// add_to_limbs for several leaves at a time. Each lane has limbs of its own.
class LaneLimbs {
 public:
  HWY_INLINE void add(const double* leaves) {
    const Words words;
    const Ints ints;
    const auto bits = hn::BitCast(ints, hn::LoadU(LeafDoubles{}, leaves));
    const auto zero = hn::Zero(ints);
    const auto limit = hn::Set(ints, std::bit_cast<int64_t>(kTooLargeForLimbs));
    if (!hn::AllTrue(ints, hn::AndNot(hn::Lt(bits, zero), hn::Lt(bits, limit)))) {
      for (int64_t i = 0; i < kLeavesAtOnce; ++i) add_to_limbs(apart_.data(), leaves[i]);
      return;
    }
    // As in limbs_of: leaf = mantissa 2^(place - 80).
    const auto implicit = hn::Set(ints, int64_t{1} << 52);
    const auto place = hn::Sub(hn::ShiftRight<52>(bits), hn::Set(ints, 1023 + 52 - kFractionBits));
    const auto below = hn::Min(hn::Max(hn::Sub(zero, place), zero), hn::Set(ints, 63));
    const auto whole = hn::Or(hn::And(bits, hn::Sub(implicit, hn::Set(ints, 1))), implicit);
    const auto mantissa = hn::Shr(hn::BitCast(words, whole), hn::BitCast(words, below));
    const auto at = hn::BitCast(words, hn::Max(place, zero));
    const auto shift = hn::And(at, hn::Set(words, kLimbBits - 1));
    const auto low = hn::Shl(mantissa, shift);
    add_parts(hn::ShiftRight<5>(at), hn::And(low, hn::Set(words, 0xFFFFFFFFu)),
              hn::ShiftRight<32>(low),
              hn::Shr(hn::ShiftRight<1>(mantissa), hn::Sub(hn::Set(words, 63), shift)));
  }

  void add_to(Limbs& limbs) const {
    for (size_t j = 0; j < limbs.size(); ++j) {
      limbs[j] += apart_[j];
      for (size_t lane = 0; lane < kLeavesAtOnce; ++lane)
        limbs[j] += static_cast<int64_t>(sums_[j * kLeavesAtOnce + lane]);
    }
  }

 private:
  using Ints = hn::RebindToSigned<Words>;
  using LeafDoubles = hn::RebindToFloat<Words>;
  using Word = hn::Vec<Words>;

  /// Adds the parts of each lane to its limbs `first`, `first` + 1 and `first` + 2. Neighboring
  /// leaves mostly have the same `first`, so one round serves all lanes. (Below 2^272 `first` is at
  /// most 9, and then the last part is zero. Limb 11 counts leaves that are not finite.)
  HWY_INLINE void add_parts(Word first, Word part0, Word part1, Word part2) {
    const Words words;
    std::array<uint64_t, kLeavesAtOnce> firsts;
    hn::StoreU(first, words, firsts.data());
    auto left = hn::Eq(first, first);
    do {
      const uint64_t limb = firsts[static_cast<size_t>(hn::FindFirstTrue(words, left))];
      const auto these = hn::Eq(first, hn::Set(words, limb));
      uint64_t* sums = sums_.data() + limb * kLeavesAtOnce;
      for (const Word& part : {part0, part1, part2}) {
        hn::StoreU(hn::Add(hn::LoadU(words, sums), hn::IfThenElseZero(these, part)), words, sums);
        sums += kLeavesAtOnce;
      }
      left = hn::AndNot(these, left);
    } while (!hn::AllFalse(words, left));
  }

  Limbs apart_{};  ///< of leaves that are not finite, and of their neighbors
  std::array<uint64_t, kLimbs * kLeavesAtOnce> sums_{};
};

/// Adds x[range] to the limbs. The range begins at a leaf.
void add_range(Limbs& limbs, const float* x, Range range) {
  LaneLimbs lanes;
  int64_t i = range.begin;
  for (; i + kLeavesAtOnce * kNormLeaf <= range.end; i += kLeavesAtOnce * kNormLeaf) {
    std::array<double, kLeavesAtOnce> leaves;
    for (int64_t j = 0; j < kLeavesAtOnce; ++j)
      leaves[static_cast<size_t>(j)] = leaf_of(x + i + j * kNormLeaf);
    lanes.add(leaves.data());
  }
  lanes.add_to(limbs);
  for (; i < range.end; i += kNormLeaf) {
    std::array<float, kNormLeaf> tail{};
    std::copy(x + i, x + std::min(i + kNormLeaf, range.end), tail.begin());
    add_to_limbs(limbs.data(), leaf_of(tail.data()));
  }
}

void add_limbs(int64_t* to, const Limbs& limbs) {
  for (size_t i = 0; i < limbs.size(); ++i) to[i] += limbs[i];
}

}  // namespace

void squared_norm(const Ctx& ctx, Tensor limbs, Tensor x) {
  const Extents s = check_shapes(Op::squared_norm, limbs, x);
  const float* from = x.data<float>();
  int64_t* to = limbs.data<int64_t>();
  if (s.R >= ctx.threads) {
    parallel_for(ctx, s.R, 1, s.N, [&](Range rows) {
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        Limbs sum{};
        add_range(sum, from + row * s.N, {0, s.N});
        add_limbs(to + row * kLimbs, sum);
      }
    });
    return;
  }
  std::mutex adding;
  for (int64_t row = 0; row < s.R; ++row) {  // few long rows: threads share each row
    parallel_for(ctx, s.N, kNormLeaf, 1, [&](Range range) {
      Limbs sum{};
      add_range(sum, from + row * s.N, range);
      const std::lock_guard lock(adding);
      add_limbs(to + row * kLimbs, sum);  // integers: the order does not matter
    });
  }
}

void adaptive_clip(const Ctx& ctx, Tensor grad, Tensor grad_limbs, Tensor weight_limbs,
                   float clip) {
  const Extents s = check_shapes(Op::adaptive_clip, grad, grad_limbs, weight_limbs);
  float* g = grad.data<float>();
  const int64_t* g_limbs = grad_limbs.data<int64_t>();
  const int64_t* w_limbs = weight_limbs.data<int64_t>();
  parallel_for(ctx, s.R, 1, s.N, [&](Range rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const double weight = std::max(std::sqrt(limbs_value(w_limbs + row * kLimbs)), 1e-3);
      const double norm = std::max(std::sqrt(limbs_value(g_limbs + row * kLimbs)), 1e-6);
      const auto factor = static_cast<float>(clip * weight / norm);
      if (factor >= 1) continue;
      for_vectors(row * s.N, (row + 1) * s.N, [&](int64_t i, auto io) {
        io.store(hn::Mul(io.load(g + i), broadcast(factor)), g + i);
      });
    }
  });
}

}  // namespace ladder::cpu
