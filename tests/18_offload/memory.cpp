// 18_offload: what is left in memory, and what a step moves to files and back.
#include "tests/common/memory.h"

#include <tuple>

namespace ladder::test {
namespace {

class OffloadBytes : public MemoryRuns {
 protected:
  nlohmann::json run(const std::string& flags) const { return report("18_offload", flags); }
  nlohmann::json run(int64_t N, const std::string& flags) const {
    return run(fmt::format("--layers {} --steps 1 --batch 16 --ranks {} {}", L, N, flags));
  }
  int64_t inputs(const std::string& flags, const char* which = "measured") const {
    return run("--layers 5 --recompute " + flags)["extra"]["offload"]["inputs"][which];
  }
  // nano, a batch of 4.
  static constexpr int64_t L = 3, C = kChannels, NH = 8, T = 16, B = 4, Vp = 256;
};

// Two inputs stay, whatever the number of layers; without the file 1 + ceil(L/K).
TEST_F(OffloadBytes, OfActivations) {
  plan_only();
  for (const auto& [policy, layers, kept] :
       {std::tuple{"full", 5, 1}, {"full", 1, 1}, {"every:2", 5, 2}, {"every:3", 7, 3}})
    for (const auto& [precision, bytes] : {std::pair{"fp32", 4}, {"bf16", 2}}) {
      const auto got = run(fmt::format("--layers {} --recompute {} --offload inputs --precision {}",
                                       layers, policy, precision));
      // Of a block 15 C and the statistics; all outputs of a segment but its last are kept, too.
      const int64_t numbers = (2 + kept * 15 + kept - 1 + 1) * C + Vp;
      EXPECT_EQ(predicted(got, Mem::Activation) - 8 * B * T - 4 * B,
                B * T * (bytes * numbers + 4 * (kept * (4 + NH) + 2)))
          << policy << " " << precision;
    }
}

// Each micro-batch of the last step writes the inputs of all segments but the last, and reads them.
TEST_F(OffloadBytes, OfInputs) {
  for (const auto& [policy, count] :
       {std::pair{"full", 4}, {"every:2", 2}, {"every:3", 1}, {"none", 0}, {"selective", 0}})
    for (const char* flags : {" --steps 1", " --steps 3", " --steps 3 --micro-batch 1"})
      EXPECT_EQ(inputs(std::string(policy) + " --offload inputs" + flags),
                count * 2 * 4 * B * T * C)
          << policy << flags;
  EXPECT_EQ(inputs("full"), 0);
  EXPECT_EQ(inputs("full --offload inputs --steps 0"), 0);
  EXPECT_EQ(inputs("full --offload inputs --steps 0", "predicted"), 0);
}

TEST_F(OffloadBytes, FilesTakeWhatTheyAreGiven) {
  for (const int64_t N : {1, 4}) {
    const int64_t P = parameters(L, N);
    const auto states = run(N, "--precision bf16 --offload optimizer"),
               all = run(N, "--precision bf16 --offload optimizer,weights"),
               weights = run(N, "--precision bf16 --offload weights");
    for (size_t r = 0; r < static_cast<size_t>(N); ++r) {
      for (const auto& report : {states, all}) {
        EXPECT_EQ(measured(report, Mem::Optim, r), 0);
        EXPECT_EQ(measured(report, Mem::Master, r), 0);
        EXPECT_EQ(measured(report, Mem::Grad, r), 4 * P / N);
      }
      EXPECT_EQ(measured(weights, Mem::Master, r), 4 * P / N);
    }
    EXPECT_EQ(measured(states, Mem::Param), 2 * P / N);
    EXPECT_EQ(measured(all, Mem::Param), 0);
    for (const auto& [report, bytes] : {std::pair{states, 12}, {all, 14}, {weights, 2}}) {
      const auto& offload = report["extra"]["offload"];
      // Files are whole pages.
      EXPECT_GE(offload["bytes"].get<int64_t>(), bytes * P / N);
      EXPECT_LE(offload["bytes"].get<int64_t>(), bytes * P / N + 4 * 4096);
      EXPECT_EQ(offload["moved"]["predicted"], offload["moved"]["measured"]);
    }
  }
}

}  // namespace
}  // namespace ladder::test
