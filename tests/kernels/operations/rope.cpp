// Rotary positions: the bits of `ref`, since the products and near_ref multiply-adds are written
// out.
#include <array>

#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

using Rope = VsRef;

TEST_F(Rope, HasTheBitsOfRef) {
  const int64_t B = 2, T = 33;
  for (const Dtype dtype : kReals)
    // One pair, odd numbers of them, and accesses of 16 bytes with 4 and with 8 numbers.
    for (const auto& [NKV, r, HS] :
         {std::array{1, 1, 2}, std::array{2, 3, 6}, std::array{3, 1, 8}, std::array{2, 4, 64},
          std::array{5, 2, 128}, std::array{1, 2, 130}})
      for (const bool back : {false, true}) {
        const Tensor angles = host.angles(T + 1, HS);
        const Tensor want = host.random(dtype, {B, T, NKV * (r + 2) * HS}, -3, 3), got = up(want);
        const Tensor before = host.copy(want);
        k.rope(ctx, got, up(angles), NKV * r, back);
        ref.rope(host.ctx(), want, angles, NKV * r, back);
        EXPECT_TRUE(same_bits(down(got), want)) << NKV << " " << r << " " << HS;
        EXPECT_FALSE(same_bits(down(got), before));
      }
}

TEST_F(Rope, ForthAndBackIsNothing) {
  const Tensor before = host.random({1, 7, 3 * 16}), angles = up(host.angles(7, 16));
  const Tensor qkv = up(before);
  k.rope(ctx, qkv, angles, 1, false);
  EXPECT_GT(relative_error(down(qkv), before), 0.1);
  k.rope(ctx, qkv, angles, 1, true);
  EXPECT_LT(relative_error(down(qkv), before), 1e-6);
}

TEST_F(Rope, ANaNReachesItsPair) {
  const Tensor qkv = host.random({1, 2, 3 * 8});
  set(qkv, 1, NAN);
  const Tensor got = up(qkv);
  k.rope(ctx, got, up(host.angles(2, 8)), 1, false);
  for (int64_t i = 0; i < qkv.size(); ++i)
    EXPECT_EQ(std::isnan(at(down(got), i)), i == 1 || i == 5) << i;
}

TEST_F(Rope, TokensOfARank) {
  const int64_t T = 6, N = 3 * 8;
  const Tensor all = host.random({T, N}), angles = host.angles(T, 8);
  const Tensor whole = up(all), part = up(all.slice(2, 3)).view({1, 3, N});
  k.rope(ctx, whole.view({1, T, N}), up(angles), 1, false);
  k.rope(ctx, part, up(angles.slice(2, 3)), 1, false);
  EXPECT_TRUE(same_bits(down(part).view({3, N}), down(whole).slice(2, 3)));
}

}  // namespace
}  // namespace ladder::test
