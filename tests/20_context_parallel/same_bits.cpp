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

}  // namespace
}  // namespace ladder::test
