// 01_sgd: bytes written out. That they are as predicted: predicted.txt.
#include "tests/common/memory.h"

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class SgdMemory : public MemoryRuns {};

TEST_F(SgdMemory, BytesOfAParameter) {
  plan_only();
  const auto plain = report("01_sgd", ""), momentum = report("01_sgd", "--momentum 0.9");
  const int64_t P = plain["model"]["parameters"];
  EXPECT_EQ(P, parameters(8));
  EXPECT_EQ(predicted(plain, Mem::Param), 4 * P);
  EXPECT_EQ(predicted(plain, Mem::Grad), 4 * P);
  EXPECT_EQ(predicted(plain, Mem::Optim), 0);
  EXPECT_EQ(predicted(momentum, Mem::Optim), 4 * P);
  EXPECT_EQ(predicted(momentum, Mem::Grad), 4 * P);
}

TEST_F(SgdMemory, ActivationsOfTheModel) {
  plan_only();
  // What forward keeps, by the shapes of the design: NH = 8, T = 16, V = 256, L = 8.
  const int64_t C = kChannels;
  const int64_t norm = C + 2, attn = 3 * C + C + 8, mlp = 2 * 4 * C;
  const int64_t block = norm + attn + C + norm + mlp + C;
  const int64_t token = C + 8 * block + norm + 256;
  const auto got = report("01_sgd", "--batch 3");
  EXPECT_EQ(predicted(got, Mem::Activation), 3 * 16 * (4 * token + 8) + 3 * 4);
}

TEST_F(SgdMemory, NegativeControl) {
  const auto right = report("01_sgd", "");
  EXPECT_TRUE(as_predicted(right));
  auto wrong = right, lost = right, other = right;
  wrong["memory"][0]["Workspace"]["measured"] = measured(right, Mem::Workspace) + 1;
  EXPECT_FALSE(as_predicted(wrong));
  lost["memory"][0]["Workspace"]["predicted"] = nullptr;
  EXPECT_FALSE(as_predicted(lost));
  other["extra"]["ranks"] = {{{"sent", {{"predicted", 1}, {"measured", 2}}}}};
  EXPECT_FALSE(as_predicted(other));
}

}  // namespace
}  // namespace ladder::test
