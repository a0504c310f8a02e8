// 02_adamw: what each optimizer keeps for a parameter.
#include "tests/common/memory.h"

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class OptimizerMemory : public MemoryRuns {
 protected:
  int64_t optim(const std::string& name, const std::string& flags = "") const {
    return measured(report("02_adamw", "--optimizer " + name + flags), Mem::Optim);
  }
};

TEST_F(OptimizerMemory, BytesOfAParameter) {
  const int64_t L = 8, C = kChannels, T = 16, V = 256;
  const int64_t P = parameters(L);
  EXPECT_EQ(optim("sgd"), 0);
  EXPECT_EQ(optim("sgd --momentum 0.9"), 4 * P);
  EXPECT_EQ(optim("adam"), 8 * P);
  EXPECT_EQ(optim("adamw"), 8 * P);
  EXPECT_EQ(optim("lion"), 4 * P);
  EXPECT_EQ(optim("adamw8bit"), 2 * P + 2 * 4 * P / 64);  // two scales for 64 of them

  // Rows and columns of each matrix, and every vector whole.
  const int64_t matrices = (3 * C + C) + (C + C) + (4 * C + C) + (C + 4 * C), vectors = 13 * C;
  const int64_t ends = 2 * (V + C) + (T + C) + 2 * C;
  EXPECT_EQ(optim("adafactor"), 4 * (L * (matrices + vectors) + ends));
  EXPECT_LT(optim("adafactor"), P / 5);  // less, the wider the matrices
}

}  // namespace
}  // namespace ladder::test
