// Experts: what a checkpoint must hold. The bits of runs: equal_runs.txt.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

const std::string k21 = "21_moe";
const std::string kMoe = "--model moe-nano --batch 8 --clip 1 ";

class Experts : public SameTraceSmall {};

// The bias is no parameter, so it is the state of a checkpoint that makes it go on.
TEST_F(Experts, ABiasThatIsLostWouldBeSeen) {
  const std::string flags = kMoe + "--bias-rate 0.05 ";
  const Trace whole = trace(k21, flags), half = trace(k21, flags + "--save half", {0, kHalf});
  const Trace rest = trace(k21, flags + "--load half", {kHalf, kSteps});
  EXPECT_TRUE(same_trace(whole, joined(half, rest)));
  set_state(path("half"), "router_bias", std::vector<float>(2 * 8, 0.0f));
  EXPECT_TRUE(
      different_trace(whole, joined(half, trace(k21, flags + "--load half", {kHalf, kSteps}))));
}

}  // namespace
}  // namespace ladder::test
