// 01_sgd: memory as its formulas say.
#include "tests/common/memory.h"

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class SgdMemory : public MemoryRuns {};

TEST_F(SgdMemory, IsAsPredicted) {
  for (const std::string flags :
       {"", "--momentum 0.9", "--momentum 0.9 --nesterov", "--threads 3",
        "--backend ref --layers 1", "--model tiny --batch 3 --seq-len 13",
        "--layers 3 --channels 40 --heads 5",
        "--save here --sample 20 --eval-every 1 --timeline timeline.json"})
    EXPECT_TRUE(as_predicted(report("01_sgd", flags))) << flags;
}

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
  auto wrong = report("01_sgd", "");
  EXPECT_TRUE(as_predicted(wrong));
  wrong["memory"][0]["Workspace"]["measured"] = measured(wrong, Mem::Workspace) + 1;
  EXPECT_FALSE(as_predicted(wrong));
}

}  // namespace
}  // namespace ladder::test
