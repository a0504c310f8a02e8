// 37_rl with processes as ranks, under mpirun: they draw, learn and go on as one rank does.
#include "tests/37_rl/runs.h"

namespace ladder::test {
namespace {

TEST_F(Rl, ProcessesHaveTheBitsOfOneRank) {
  save_base("--model tiny");
  const std::string dpo = kDpo + "--loss dpo ", grpo = kGrpo + "--updates 4 --lr 0.001 ";
  const Program two = under_mpirun(k37, 2), four = under_mpirun(k37, 4);
  for (const std::string& flags : {dpo, grpo}) {
    const Trace one = trace(k37, flags);
    EXPECT_TRUE(same_trace(one, trace(four, flags))) << flags;
    std::filesystem::remove_all(path("half"));
    const Trace first = trace(two, flags + "--save half", {0, kHalf});
    EXPECT_TRUE(same_trace(one, joined(first, trace(four, flags + "--load half", {kHalf, kSteps}))))
        << flags;
  }
}

}  // namespace
}  // namespace ladder::test
