// 20_context_parallel: ranks that share each sequence have the bits of 06 on one rank.
#include <vector>

#include "tests/20_context_parallel/context_runs.h"
#include "tests/common/pairwise.h"

namespace ladder::test {
namespace {

class ContextBits : public ContextRuns, public ::testing::WithParamInterface<Exact> {};
INSTANTIATE_TEST_SUITE_P(Context, ContextBits,
                         ::testing::Values(Exact{"gpt", kGpt}, Exact{"llama", kLlama}), exact_name);

// Ranks that share a sequence, shares of the batch, how keys travel, and what is computed again:
// each pair of their values.
TEST_P(ContextBits, EachPairOfValues) {
  const std::vector<Factor> factors = {{"--cp 1", "--cp 2", "--cp 4", "--cp 8"},
                                       {"1", "2"},
                                       {"--context gather", "--context ulysses", "--context ring"},
                                       {"", "--recompute full", "--recompute selective"}};
  // LLaMA's keys and values have 4 heads.
  const bool few_heads = GetParam().name == "llama";
  const auto is_legal = [&](const Row& row) { return !(few_heads && row[0] == 3 && row[2] == 1); };
  const std::string flags = GetParam().flags + "--batch 2";
  const Trace alone = one(flags);
  EXPECT_TRUE(same_trace(alone, trace("09_zero2", flags + " --clip 1 --micro-batch 1", kShort)));
  for (const Row& row : pairwise(factors, is_legal)) {
    const int ranks = (1 << row[0]) * (row[1] == 0 ? 1 : 2);
    const std::string ours = fmt::format(" --ranks {} {} {} {}", ranks, factors[0][row[0]],
                                         factors[2][row[2]], factors[3][row[3]]);
    EXPECT_TRUE(same_trace(alone, shared(flags + ours))) << ours;
  }
}

// Validation, and text.
TEST_F(ContextRuns, ValidatesAndSamplesTheSame) {
  const auto text = [&](const std::string& chapter, const std::string& flags) {
    const std::string out =
        train(chapter, kGpt + "--batch 2 --steps 1 --micro-batch 1 --sample 12 " + flags).out;
    const size_t begin = out.find("---- sample");
    return begin == std::string::npos ? chapter : out.substr(begin);
  };
  const auto evals = [&](const std::string& chapter, const std::string& flags) {
    return report(chapter, kGpt + "--batch 2 --steps 2 --micro-batch 1 --eval-every 1 " + flags)
        .at("evals");
  };
  const std::string alone = text("06_checkpointing", "");
  EXPECT_GT(alone.size(), 12U);
  const auto losses = evals("06_checkpointing", "");
  EXPECT_EQ(losses.size(), 1U);
  for (const std::string way : {"gather --ranks 4 --cp 2", "ulysses --cp 4", "ring --cp 8"}) {
    EXPECT_EQ(text("20_context_parallel", "--context " + way), alone) << way;
    EXPECT_EQ(evals("20_context_parallel", "--context " + way), losses) << way;
  }
}

// Ranks hold chunks of everything, and which tokens they have is no matter of what is saved.
TEST_F(ContextRuns, CheckpointsGoFromLayoutToLayout) {
  const std::string flags = kGpt + "--batch 2 ";
  const Trace whole = one(flags);
  const Trace first = shared(flags + "--cp 4 --context ring --save four", {0, 1});
  const Trace alone = one(flags + "--save one", {0, 1});
  EXPECT_TRUE(same_trace(first, alone));
  for (const std::string file : {"/model.safetensors", "/current/optimizer.safetensors"})
    EXPECT_EQ(read("four" + file), read("one" + file)) << file;
  EXPECT_TRUE(same_trace(whole, joined(first, one(flags + "--load four", {1, 2}))));
  EXPECT_TRUE(same_trace(
      whole, joined(first, trace("09_zero2", flags + "--clip 1 --ranks 2 --load four", {1, 2}))));
  for (const std::string ours : {"--cp 8 --context gather", "--cp 2 --ranks 4 --context ulysses"})
    EXPECT_TRUE(same_trace(whole, joined(alone, shared(flags + "--load one " + ours, {1, 2}))))
        << ours;
}

}  // namespace
}  // namespace ladder::test
