// 22_expert_parallel: ranks that split experts have the bits of 21 on one rank. Models have
// two blocks with 8 experts, routed in each way.
#include <string>
#include <vector>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

const std::string k21 = "21_moe", k22 = "22_expert_parallel";

/// Full experts drop tokens, and a bias moves.
const std::string kRouting =
    "--experts-per-token 3 --capacity 0.7 --balance-loss 0.5 --bias-rate 0.05";

class ExpertRuns : public SameTraceSmall {
 protected:
  static std::string of_model(const std::string& flags) {
    return "--model moe-nano --batch 16 --clip 1 " + flags;
  }
};

// Load, MaxVio, losses of routers and what is dropped are those of all ranks' sequences.
TEST_F(ExpertRuns, CountsWhatAllRanksHaveRouted) {
  const std::string flags = of_model("--layers 2 --steps 2 ") + kRouting;
  const auto of = [&](const std::string& chapter, const std::string& ours) {
    return report(chapter, flags + " " + ours).at("extra").at("experts");
  };
  const auto alone = of(k21, "");
  EXPECT_GT(alone["steps"]["dropped"][0], 0);
  for (const std::string ours : {"--ep 4 --ranks 8", "--ep 2 --micro-batch 1"})
    EXPECT_EQ(of(k22, ours), alone) << ours;
}

// The bias is no parameter, so it is the state of a checkpoint that makes it go on.
TEST_F(ExpertRuns, ABiasThatIsLostWouldBeSeen) {
  const std::string flags = "--model moe-nano --batch 8 --clip 1 --bias-rate 0.05 ";
  const Trace whole = trace(k21, flags), half = trace(k21, flags + "--save half", {0, kHalf});
  const Trace rest = trace(k21, flags + "--load half", {kHalf, kSteps});
  EXPECT_TRUE(same_trace(whole, joined(half, rest)));
  set_state(path("half"), "router_bias", std::vector<float>(2 * 8, 0.0f));
  EXPECT_TRUE(
      different_trace(whole, joined(half, trace(k21, flags + "--load half", {kHalf, kSteps}))));
}

}  // namespace
}  // namespace ladder::test
