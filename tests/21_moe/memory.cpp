// Bytes, weights and operations of models with experts, as the formulas say.
#include "tests/common/memory.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace ladder::test {
namespace {

const std::string k21 = "21_moe";

class ExpertMemory : public MemoryRuns {
 protected:
  nlohmann::json of(const std::string& flags) const {
    const bool given = flags.find("--model") != std::string::npos;
    return report(k21,
                  (given ? "" : "--model moe-nano ") + ("--layers 3 --steps 1 --batch 4 " + flags));
  }
};

TEST_F(ExpertMemory, WithoutExpertsThereIsNothingOfThem) {
  EXPECT_FALSE(report(k21, "--model llama-nano --steps 1")["extra"].contains("experts"));
}

// Of 4 x 16 tokens that take 2 of 8 experts each.
TEST_F(ExpertMemory, LoadIsThatOfTheWholeBatch) {
  const nlohmann::json experts = of("")["extra"]["experts"];
  double most = 0, least = 0;
  for (const auto& block : experts["load"]) {
    const auto load = block.get<std::vector<int64_t>>();
    ASSERT_EQ(load.size(), 8u);
    EXPECT_EQ(std::accumulate(load.begin(), load.end(), int64_t{0}), 4 * 16 * 2);
    most += static_cast<double>(*std::max_element(load.begin(), load.end())) / 16 - 1;
    least += static_cast<double>(*std::min_element(load.begin(), load.end())) / 16;
  }
  EXPECT_DOUBLE_EQ(experts["steps"]["max_violation"][0], most / 3);
  EXPECT_DOUBLE_EQ(experts["steps"]["least_load"][0], least / 3);
  EXPECT_GT(most, 0);
  EXPECT_EQ(experts, of("--micro-batch 1")["extra"]["experts"]);
}

// A plan that no test can train. In BF16 a parameter has 2
// bytes and its master 4.
TEST_F(ExpertMemory, PlanOfMixtral) {
  const Ended ended = run(k21, small_run("--model mixtral-8x7b --layers 32 --channels 4096 "
                                         "--precision bf16 --plan-only"));
  EXPECT_EQ(ended.status, 0);
  for (const char* says : {"46702792704 parameters, of which a token uses 12879925248",
                           "Param 89078.51 + Master 178157.02 +"})
    EXPECT_NE(ended.out.find(says), std::string::npos) << ended.out << ended.err;
}

// What full experts drop is not multiplied.
TEST_F(ExpertMemory, DroppedChoicesTakeNoOperations) {
  const auto all = of(""), some = of("--capacity 0.5");
  const double dropped = some["extra"]["experts"]["steps"]["dropped"][0];
  EXPECT_GE(dropped, 0.5);
  EXPECT_LT(dropped, 1);
  const int64_t rows = 3 * 4 * 16 * 2;  // of three blocks
  const auto flops = [](const nlohmann::json& report) {
    return report["extra"]["block"]["flops"]["measured"].get<double>();
  };
  EXPECT_EQ(std::round(flops(all) - flops(some)), std::round(dropped * rows * 6 * 3 * 64 * 64));
}

}  // namespace
}  // namespace ladder::test
