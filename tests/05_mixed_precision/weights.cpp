// The weights twice: what learns, and what forward reads.
#include "chapters/05_mixed_precision/precision.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

class TwoWeights : public ::testing::TestWithParam<const Kernels& (*)()> {
 protected:
  Sandbox box{GetParam()()};
  Arena arena;
};
INSTANTIATE_TEST_SUITE_P(Tables, TwoWeights, ::testing::Values(ref_kernels, cpu_kernels),
                         [](const auto& table) { return std::string(table.param().name); });

TEST_P(TwoWeights, InFp32AreOne) {
  const Weights weights(arena, 64, {});
  EXPECT_EQ(weights.compute.ptr, weights.master.ptr);
  EXPECT_EQ(arena.current()[Mem::Param], 4 * 64);
  EXPECT_EQ(arena.current().total(), 4 * 64);
  weights.master.data<float>()[0] = 0.1F;
  weights.refresh(box.ctx());
  EXPECT_EQ(weights.compute.data<float>()[0], 0.1F);
}

TEST_P(TwoWeights, NarrowOnesAreRoundedToNearestEven) {
  for (const char* name : {"bf16", "fp16"}) {
    const Weights weights(arena, 64, {.name = name});
    float* master = weights.master.data<float>();
    std::fill_n(master, 64, 0.0F);
    const int digits = format_of(weights.compute.dtype).mantissa_bits;
    const float last = std::exp2(static_cast<float>(-digits));
    master[0] = 1 + last / 2;      // a tie: down to even
    master[1] = 1 + last * 3 / 2;  // a tie: up to even
    master[2] = std::nextafter(1 + last / 2, 2.0F);
    master[3] = -1 - last / 4;
    const Tensor before = box.copy(weights.master);
    weights.refresh(box.ctx());
    EXPECT_EQ(at(weights.compute, 0), 1) << name;
    EXPECT_EQ(at(weights.compute, 1), 1 + 2 * last) << name;
    EXPECT_EQ(at(weights.compute, 2), 1 + last) << name;
    EXPECT_EQ(at(weights.compute, 3), -1) << name;
    EXPECT_TRUE(same_bits(weights.master, before)) << name;
  }
}

TEST_P(TwoWeights, AMasterOf16BitsLosesWhatIsRounded) {
  const Weights weights(arena, 64, {.name = "bf16", .master_bits = 16});
  std::fill_n(weights.master.data<float>(), 64, 1 + 0x1p-9F);
  weights.refresh(box.ctx());
  EXPECT_EQ(weights.master.data<float>()[63], 1);
}

}  // namespace
}  // namespace ladder::test
