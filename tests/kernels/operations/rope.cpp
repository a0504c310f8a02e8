// Rotary positions: the bits of `ref`, since products and multiply-adds are written out.
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
        // As a rank has them whose first token is the third of the sequence.
        const Tensor angles = host.angles(T + 3, HS).slice(2, T + 1);
        const Tensor want = host.random(dtype, {B, T, NKV * (r + 2) * HS}, -3, 3), got = up(want);
        const Tensor before = host.copy(want);
        k.rope(ctx, got, up(angles), NKV * r, back);
        ref.rope(host.ctx(), want, angles, NKV * r, back);
        EXPECT_TRUE(same_bits(down(got), want)) << NKV << " " << r << " " << HS;
        EXPECT_FALSE(same_bits(down(got), before));
      }
}

TEST_F(Rope, ANaNReachesItsPair) {
  const Tensor qkv = host.random({1, 2, 3 * 8});
  set(qkv, 1, NAN);
  const Tensor got = up(qkv);
  k.rope(ctx, got, up(host.angles(2, 8)), 1, false);
  for (int64_t i = 0; i < qkv.size(); ++i)
    EXPECT_EQ(std::isnan(at(down(got), i)), i == 1 || i == 5) << i;
}

}  // namespace
}  // namespace ladder::test
