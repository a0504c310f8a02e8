// Bytes of what each optimizer keeps, written out. That they are as predicted: predicted.txt.
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class OptimizersMemory : public MemoryRuns {
 protected:
  int64_t optim(const std::string& flags) const {
    return measured(report("32_optimizers", "--optimizer " + flags), Mem::Optim);
  }
};

TEST_F(OptimizersMemory, BytesOfAParameter) {
  const int64_t L = 8, C = kChannels, T = 16, V = 256;
  const int64_t P = parameters(L);
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
