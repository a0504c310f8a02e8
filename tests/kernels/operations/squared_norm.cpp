// Squared norms have the limbs of ref, bit for bit; and adaptive clipping.
#include "kernels/limbs.h"
#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

class SquaredNorm : public VsRef {
 protected:
  /// Adds the norm `times` times. Where the order in a leaf differs from that of `ref`, each number
  /// gets so few bits that the sum is exact in any order.
  void expect_limbs_of_ref(const Tensor& x, int times = 1) {
    for (int64_t i = 0; near_ref && i < x.size(); ++i) {
      if (!std::isfinite(at(x, i)) || at(x, i) == 0) continue;
      const double few = std::ldexp(1, std::ilogb(at(x, i)) - 4);
      set(x, i, few * std::round(at(x, i) / few));
    }
    const Tensor want = host.zeros(Dtype::I64, {x.dim(0), kLimbs}), limbs = share(want);
    for (int i = 0; i < times; ++i) {
      k.squared_norm(ctx, limbs, up(x));
      ref.squared_norm(host.ctx(), want, x);
    }
    EXPECT_TRUE(same_bits(down(limbs), want)) << to_string(x.shape);
  }
};

TEST_F(SquaredNorm, HasTheBitsOfRef) {
  for (const auto& [R, N] :
       {std::pair{1, 1}, {1, 16}, {5, 77}, {3, 1000}, {40, 64}, {2, 5003}, {1, 100004}})
    expect_limbs_of_ref(host.random({R, N}));
}

TEST_F(SquaredNorm, OfAllMagnitudes) {
  const Tensor x = host.random({7, 1003});
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t power = near_ref ? i % 1003 / kNormLeaf + i / 1003 : i;
    set(x, i, std::ldexp(at(x, i), static_cast<int>(power * 37 % 250) - 125));
  }
  expect_limbs_of_ref(x, 3);
}

TEST_F(SquaredNorm, CountsLeavesThatAreNotFinite) {
  const Tensor x = host.random({3, 77});
  set(x, 77 + 3, NAN);
  set(x, 77 + 4, NAN);  // the same leaf
  set(x, 77 + 40, INFINITY);
  set(x, 77 + 60, 3e38);  // large, but no infinity
  expect_limbs_of_ref(x, 2);
  const Tensor limbs = share(host.zeros(Dtype::I64, {3, kLimbs}));
  k.squared_norm(ctx, limbs, up(x));
  EXPECT_EQ(down(limbs).data<int64_t>()[kLimbs + kNonfiniteLimb], 2);
}

TEST_F(SquaredNorm, AdaptiveClip) {
  for (const int64_t N : {7, 64, 1029}) {
    const int64_t R = 9;
    const Tensor w = host.random({R, N}, -0.1, 0.1), g = host.random({R, N}), want = host.copy(g);
    for (int64_t n = 0; n < N; ++n) set(w, n, 100);    // a row that is not clipped
    for (int64_t n = 0; n < N; ++n) set(w, N + n, 0);  // one as if it were of length 1e-3
    const Tensor w_limbs = host.zeros(Dtype::I64, {R, kLimbs}), g_limbs = host.copy(w_limbs);
    ref.squared_norm(host.ctx(), w_limbs, w);
    ref.squared_norm(host.ctx(), g_limbs, g);
    const Tensor got = up(g);
    k.adaptive_clip(ctx, got, share(g_limbs), share(w_limbs), 0.2F);
    ref.adaptive_clip(host.ctx(), want, g_limbs, w_limbs, 0.2F);
    EXPECT_TRUE(same_bits(down(got), want)) << N;
    EXPECT_TRUE(same_bits(want.first(1), g.first(1)));
    EXPECT_FALSE(same_bits(want.slice(1, 1), g.slice(1, 1)));
  }
}

TEST_F(SquaredNorm, AdaptiveClipOfARowThatIsNotFinite) {
  const Tensor g = host.filled({3, 2}, 1), w = host.filled({3, 2}, 1);
  set(g, 1, INFINITY);  // row 0
  set(w, 5, NAN);       // row 2
  const Tensor g_limbs = host.zeros(Dtype::I64, {3, kLimbs}), w_limbs = host.copy(g_limbs);
  ref.squared_norm(host.ctx(), g_limbs, g);
  ref.squared_norm(host.ctx(), w_limbs, w);
  const Tensor got = up(g);
  k.adaptive_clip(ctx, got, share(g_limbs), share(w_limbs), 0.01F);
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(at(down(got), i)), i / 2 != 1) << i;
}

}  // namespace
}  // namespace ladder::test
