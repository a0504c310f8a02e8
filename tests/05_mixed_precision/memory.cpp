// 05_mixed_precision: bytes of a parameter and of an activation.
#include "tests/common/memory.h"

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class Bytes : public MemoryRuns {
 protected:
  nlohmann::json run(const std::string& flags) const {
    return report("05_mixed_precision", "--steps 1 --loss-scale 1024 --precision " + flags);
  }
  // nano, a batch of 4. No tensor of it needs padding.
  static constexpr int64_t L = 8, C = kChannels, NH = 8, T = 16, B = 4, Vp = 256;
  static constexpr int64_t kBatch = 8 * B * T + 4 * B;  // tokens, targets and losses

  static int64_t of_weights(const nlohmann::json& report) {
    return predicted(report, Mem::Param) + predicted(report, Mem::Master) +
           predicted(report, Mem::Grad) + predicted(report, Mem::Optim);
  }
};

TEST_F(Bytes, OfAParameter) {
  plan_only();
  const auto fp32 = run("fp32");
  const int64_t P = fp32["model"]["parameters"];
  EXPECT_EQ(of_weights(fp32), 16 * P);
  EXPECT_EQ(predicted(fp32, Mem::Master), 0);
  for (const char* name : {"bf16", "fp16"}) {
    const auto narrow = run(name);
    EXPECT_EQ(predicted(narrow, Mem::Param), 2 * P) << name;
    EXPECT_EQ(predicted(narrow, Mem::Master), 4 * P) << name;
    EXPECT_EQ(of_weights(narrow), 18 * P) << name;
  }
}

TEST_F(Bytes, HalfTheActivationsButNotTheStatistics) {
  plan_only();
  const int64_t kept = B * T * (L * 16 * C + 2 * C + Vp), statistics = B * T * (L * (NH + 4) + 2);
  const auto fp32 = run("fp32"), bf16 = run("bf16");
  EXPECT_EQ(predicted(fp32, Mem::Activation), 4 * kept + 4 * statistics + kBatch);
  EXPECT_EQ(predicted(bf16, Mem::Activation), 2 * kept + 4 * statistics + kBatch);
  EXPECT_EQ(predicted(run("fp16"), Mem::Activation), predicted(bf16, Mem::Activation));
  EXPECT_EQ(predicted(fp32, Mem::Workspace) - predicted(bf16, Mem::Workspace), 2 * B * T * 12 * C);
}

}  // namespace
}  // namespace ladder::test
