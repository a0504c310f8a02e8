// 22_expert_parallel: ranks that share experts have the bits of 21 on one rank. Models have
// two blocks with 8 experts, routed in each way.
#include <string>
#include <vector>

#include "tests/common/pairwise.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

const std::string k21 = "21_moe", k22 = "22_expert_parallel";

/// Tokens take 1, 2, 3 and 4 experts; from 3 on it matters in which order these are added.
const std::string kRoutings[] = {
    "--experts-per-token 1 --no-renormalize", "--balance-loss 0.5",
    "--experts-per-token 3 --z-loss 0.1 --shared-experts 1",
    "--experts-per-token 4 --router sigmoid --bias-rate 0.05",
    "--experts-per-token 3 --capacity 0.7 --balance-loss 0.5 --bias-rate 0.05"};
/// The last of them: with every way of balance, and tokens that are dropped.
const std::string kDropping = kRoutings[4];

class ExpertRuns : public SameTraceSmall {
 protected:
  static constexpr Range kShort = {0, 2};

  /// Chapter 21 on one rank.
  Trace one(const std::string& flags, Range range = kShort) const {
    return trace(k21, of_model(flags), range);
  }
  Trace shared(const std::string& flags, Range range = kShort) const {
    return trace(k22, of_model(flags), range);
  }
  static std::string of_model(const std::string& flags) {
    const bool given = flags.find("--model") != std::string::npos;
    return (given ? "" : "--model moe-nano ") + ("--batch 16 --clip 1 " + flags);
  }
};

// Ranks that share experts, their copies, micro-batches, how tokens are routed, what is computed
// again, and when gradients travel: each pair of their values.
TEST_F(ExpertRuns, EachPairOfValues) {
  const std::vector<Factor> factors = {
      {"--ep 1", "--ep 2", "--ep 4", "--ep 8"},
      {"1", "2", "4", "8"},
      {"", "--micro-batch 1", "--micro-batch 2"},
      {std::begin(kRoutings), std::end(kRoutings)},
      {"", "--recompute full", "--recompute selective --threads 2"},
      {"", "--ddp bucketed"}};
  const auto is_legal = [](const Row& row) { return row[0] + row[1] <= 3; };
  std::vector<Trace> alone;
  for (const std::string& routing : kRoutings) alone.push_back(one(routing));
  for (const Row& row : pairwise(factors, is_legal)) {
    const std::string ours =
        fmt::format("{} --ranks {} {} {} {} {}", factors[0][row[0]], 1 << (row[0] + row[1]),
                    factors[2][row[2]], kRoutings[row[3]], factors[4][row[4]], factors[5][row[5]]);
    EXPECT_TRUE(same_trace(alone[row[3]], shared(ours))) << ours;
  }
}

// `ref` is the specification, not the fast one.
TEST_F(ExpertRuns, OfTheSpecification) {
  const std::string flags = "--backend ref --channels 16 ";
  for (const auto& [routing, ours] : {std::pair{kRoutings[3], "--ep 2 --ranks 4"},
                                      {kDropping, "--ep 4 --ranks 8 --recompute full"},
                                      {kDropping, "--ep 8 --micro-batch 1"}})
    EXPECT_TRUE(
        same_trace(one(flags + routing, {0, 1}), shared(flags + routing + " " + ours, {0, 1})))
        << ours;
}

// Sequences of two leaves of tokens.
TEST_F(ExpertRuns, OfLongSequences) {
  const std::string flags = "--seq-len 128 --channels 32 --experts-per-token 3 --capacity 1 ";
  const Trace alone = one(flags);
  for (const std::string ours : {"--ep 2 --ranks 4", "--ep 4 --micro-batch 1"})
    EXPECT_TRUE(same_trace(alone, shared(flags + ours))) << ours;
}

// An owner returns FP32, and the sum of owners is rounded once: as on one rank.
TEST_F(ExpertRuns, InNarrowFormats) {
  for (const std::string precision :
       {"--precision bf16 --experts-per-token 3 ", "--precision fp16 --loss-scale 1024 "}) {
    const Trace alone = one(precision);
    for (const std::string ours : {"--ep 4 --ranks 8 --recompute selective", "--ep 2"})
      EXPECT_TRUE(same_trace(alone, shared(precision + ours))) << precision << ours;
  }
}

TEST_F(ExpertRuns, ComposesWithWhatCameBefore) {
  for (const auto& [flags, ours] :
       {std::pair{"--tied-head --optimizer lion", "--ep 2 --ranks 4"},
        {"--optimizer adamw8bit --experts-per-token 3", "--ep 4 --ranks 8"},
        {"--experts 16 --experts-per-token 5 --hidden 32", "--ep 4 --micro-batch 2"},
        {"--model llama-nano --experts 2 --experts-per-token 2 --kv-heads 1",
         "--ep 2 --reduction tree"},
        {"--experts 6 --recompute every:2", "--ep 1 --ranks 4"},
        {"--experts-per-token 8", "--ep 8 --reduction tree"}})
    EXPECT_TRUE(same_trace(one(flags), shared(std::string(flags) + " " + ours)))
        << flags << " " << ours;
}

TEST_F(ExpertRuns, WithoutExpertsItIsChapter09) {
  const std::string flags = "--model llama-nano --batch 8 --clip 1 --ranks 2";
  EXPECT_TRUE(same_trace(trace("09_zero2", flags, kShort), trace(k22, flags, kShort)));
}

// Load, MaxVio, losses of routers and what is dropped are those of all ranks' sequences.
TEST_F(ExpertRuns, CountsWhatAllRanksHaveRouted) {
  const std::string flags = of_model("--layers 2 --steps 2 ") + kDropping;
  const auto of = [&](const std::string& chapter, const std::string& ours) {
    return report(chapter, flags + " " + ours).at("extra").at("experts");
  };
  const auto alone = of(k21, "");
  EXPECT_GT(alone["steps"]["dropped"][0], 0);
  for (const std::string ours : {"--ep 4 --ranks 8", "--ep 2 --micro-batch 1"})
    EXPECT_EQ(of(k22, ours), alone) << ours;
}

// Negative controls: what is lost on the way must be seen.

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

class ExpertControls : public ExpertRuns {
 protected:
  const std::string flags = "--experts-per-token 3 ";
  const Trace alone = one(flags, {0, 1});

  bool is_seen(const std::string& fault) const {
    const Trace faulty = shared(flags + "--ep 2 --micro-batch 8 --fault " + fault, {0, 1});
    return faulty.steps.size() == 1 &&
           faulty.steps.back().param_hash != alone.steps.back().param_hash;
  }
};

// A block takes five of them forward: numbers of rows, choices, weights, rows, and rows that come
// back; and three backward: gradients of rows, and back those of weights and of rows. Without
// numbers and choices ranks would not agree on what travels.
TEST_F(ExpertControls, EveryExchangeOfRows) {
  for (const int nth : {2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15})
    EXPECT_TRUE(is_seen(fmt::format("skip:all_to_all:{}", nth))) << nth;
  for (const int nth : {3, 4, 10}) EXPECT_TRUE(is_seen(fmt::format("swap:all_to_all:{}", nth)));
}

// The first is the head's, the second that of the last block's experts, which one rank has.
TEST_F(ExpertControls, EverySumOfGradients) {
  for (const std::string fault : {"skip:reduce_scatter:0", "twice:reduce_scatter:1"})
    EXPECT_TRUE(is_seen(fault)) << fault;
}

}  // namespace
}  // namespace ladder::test
