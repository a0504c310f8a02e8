// Chapters 01 to 05: bytes written out. That they are as predicted: ../layouts.txt.
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

using SgdMemory = MemoryRuns;

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

// 02: what each optimizer keeps for a parameter.

class OptimizerMemory : public MemoryRuns {
 protected:
  int64_t optim(const std::string& name, const std::string& flags = "") const {
    return measured(report("02_adamw", "--optimizer " + name + flags), Mem::Optim);
  }
};

TEST_F(OptimizerMemory, BytesOfAParameter) {
  const int64_t P = parameters(8);
  EXPECT_EQ(optim("sgd"), 0);
  EXPECT_EQ(optim("sgd --momentum 0.9"), 4 * P);
  EXPECT_EQ(optim("adam"), 8 * P);
  EXPECT_EQ(optim("adamw"), 8 * P);
}

// 05: bytes of a parameter.

class PrecisionBytes : public MemoryRuns {
 protected:
  nlohmann::json run(const std::string& flags) const {
    return report("05_mixed_precision", "--steps 1 --loss-scale 1024 --precision " + flags);
  }

  static int64_t of_weights(const nlohmann::json& report) {
    return predicted(report, Mem::Param) + predicted(report, Mem::Master) +
           predicted(report, Mem::Grad) + predicted(report, Mem::Optim);
  }
};

TEST_F(PrecisionBytes, OfAParameter) {
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

}  // namespace
}  // namespace ladder::test
