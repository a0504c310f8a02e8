// Experts: the same bits however a run is cut, with each router, each way of balance, and where
// full experts drop tokens.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

const std::string k19 = "19_llama", k21 = "21_moe";
const std::string kMoe = "--model moe-nano --batch 8 --clip 1 ";

struct Routing {
  std::string name, flags;
};
void PrintTo(const Routing& routing, std::ostream* out) { *out << routing.flags; }
const Routing kRoutings[] = {
    {"One", "--experts-per-token 1 --no-renormalize "},
    {"Two", "--balance-loss 0.5 "},
    {"Three", "--experts-per-token 3 --z-loss 0.1 --shared-experts 1 "},
    {"Four", "--experts-per-token 4 --router sigmoid --bias-rate 0.05 "},
    {"Dropping", "--experts-per-token 3 --capacity 0.7 --balance-loss 0.5 --bias-rate 0.05 "}};

class Experts : public SameTraceSmall {};

TEST_F(Experts, WithoutThemItIsChapter19) {
  for (const std::string flags : {"--model llama-nano --batch 8", "--batch 8 --precision bf16"})
    EXPECT_TRUE(same_trace(trace(k19, flags), trace(k21, flags))) << flags;
}

class EachRouting : public SameTraceSmall, public ::testing::WithParamInterface<Routing> {
 protected:
  Trace ours(const std::string& flags, Range range = {0, kSteps}) const {
    return trace(k21, kMoe + GetParam().flags + flags, range);
  }
};
INSTANTIATE_TEST_SUITE_P(Of, EachRouting, ::testing::ValuesIn(kRoutings),
                         [](const auto& routing) { return routing.param.name; });

TEST_P(EachRouting, IsTheSameHoweverItRuns) {
  const Trace one = ours("");
  for (const std::string flags :
       {"--micro-batch 4", "--micro-batch 1 --threads 3", "--recompute full --micro-batch 2",
        "--recompute selective --threads 2", "--eval-every 1 --sample 3"})
    EXPECT_TRUE(same_trace(one, ours(flags))) << flags;
}

// Sequences of more than one leaf of tokens.
TEST_P(EachRouting, IsTheSameWithLongSequences) {
  const std::string flags = "--seq-len 128 ";
  EXPECT_TRUE(same_trace(ours(flags, {0, 2}), ours(flags + "--micro-batch 1 --threads 3", {0, 2})));
}

TEST_P(EachRouting, IsTheSameInNarrowFormats) {
  for (const std::string precision : {"bf16", "fp16"}) {
    const std::string narrow = "--loss-scale 1024 --precision " + precision;
    EXPECT_TRUE(same_trace(ours(narrow), ours(narrow + " --micro-batch 2 --recompute selective")))
        << precision;
  }
}

TEST_P(EachRouting, IsTheSameHoweverRefRuns) {
  const std::string small = "--channels 32 --backend ref ";
  EXPECT_TRUE(
      same_trace(ours(small, {0, 2}), ours(small + "--micro-batch 2 --recompute full", {0, 2})));
}

TEST_P(EachRouting, GoesOnAfterACheckpoint) {
  EXPECT_TRUE(same_trace(ours(""), interrupted(k21, kMoe + GetParam().flags)));
}

// ---- negative controls
// ----------------------------------------------------------------------------

TEST_F(Experts, EachFlagMatters) {
  const Trace plain = trace(k21, kMoe);
  for (const std::string flags :
       {"--experts-per-token 3", "--shared-experts 1", "--router sigmoid", "--no-renormalize",
        "--capacity 0.7", "--balance-loss 0.5", "--z-loss 0.1", "--bias-rate 0.05"})
    EXPECT_TRUE(different_trace(plain, trace(k21, kMoe + flags))) << flags;
}

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
