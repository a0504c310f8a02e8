// --plan-only: every chapter prints what a run will take, and stops.
#include "tests/common/memory.h"
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class PlanOnly : public MemoryRuns {
 protected:
  /// Holds the plan of these flags to what a run of them measures, on each rank that it names.
  void expect_measured(const std::string& chapter, const std::string& flags) const {
    SCOPED_TRACE(chapter + " " + flags);
    const auto planned = plan(chapter, flags), ran = report(chapter, "--steps 1 " + flags);
    EXPECT_EQ(planned["plan_only"], true);
    for (const char* part : {"chapter", "model"}) EXPECT_EQ(planned[part], ran[part]);
    EXPECT_EQ(planned["layout"]["ranks"], ran["layout"]["ranks"]);
    EXPECT_FALSE(planned["memory"].empty());
    for (const auto& of_rank : planned["memory"])
      for (const std::string_view name : kMemNames)
        EXPECT_EQ(of_rank[std::string(name)]["predicted"],
                  ran["memory"][of_rank["rank"].get<size_t>()][std::string(name)]["measured"])
            << of_rank["rank"] << " " << name;
  }
};

class PlanOnlyOf : public PlanOnly, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Chapters, PlanOnlyOf,
                         ::testing::ValuesIn(kSanitized ? some_chapters_from("01_sgd")
                                                        : chapters_from("01_sgd")),
                         chapter_name);

TEST_P(PlanOnlyOf, IsWhatARunTakes) { expect_measured(GetParam(), "--layers 2 --batch 8"); }

TEST_P(PlanOnlyOf, NeedsNoTextAndWritesNothing) {
  const auto before = files();
  const Ended ended = run(GetParam(), words("--plan-only --model nano"));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.out.find("MiB"), std::string::npos) << ended.out;
  EXPECT_EQ(files(), before);
}

TEST_P(PlanOnlyOf, TakesNoStep) {
  for (const std::string flag : {"--save here", "--trace here", "--timeline here"}) {
    const Ended ended = run(GetParam(), words("--plan-only --model nano " + flag));
    EXPECT_EQ(ended.status, 2) << flag;
    EXPECT_EQ(ended.err, "error: " + flag +
                             ": --plan-only takes no step; legal with it is "
                             "--report\n");
  }
}

TEST_F(PlanOnly, OfManyRanks) {
  for (const auto& [chapter, flags] : std::vector<std::pair<std::string, std::string>>{
           {"07_ddp", "--ranks 4 --precision bf16 --micro-batch 1"},
           {"10_zero3", "--ranks 2 --recompute full"},
           {"11_tensor_parallel", "--tp 4 --sequence-parallel"},
           {"12_pipeline_parallel", "--pp 4 --micro-batch 2"},
           {"13_3d_parallel", "--tp 2 --dp 2 --pp 2 --micro-batch 2"},
           {"22_expert_parallel", "--model moe-nano --channels 64 --ep 2 --ranks 4"}})
    expect_measured(chapter, "--batch 8 " + flags);
}

// No count of a plan passes 2^63, which a run checks before it knows its ranks.
TEST_F(PlanOnly, RefusesWhatNobodyCanCount) {
  const std::string huge =
      "--plan-only --model gpt3-175b --layers 4096 --channels 131072 --heads 1024 --batch 1048576";
  for (const std::string chapter : {"01_sgd", "07_ddp", "11_tensor_parallel"})
    expect_refused(chapter, huge, "could pass 2^63");
}

TEST_F(PlanOnly, RefusesWhatARunRefuses) {
  for (const auto& [chapter, flags] :
       std::vector<std::pair<std::string, std::string>>{{"04_clipping", "--micro-batch 3"},
                                                        {"07_ddp", "--ranks 3"},
                                                        {"12_pipeline_parallel", "--pp 3"}}) {
    const std::vector<std::string> all = words("--model nano --batch 8 --data text.txt " + flags);
    std::vector<std::string> only = all;
    only.emplace_back("--plan-only");
    const Ended planned = run(chapter, only), ran = run(chapter, all);
    EXPECT_EQ(planned.status, 2) << chapter;
    // Any rank may be the first to say so.
    const auto says = [](const std::string& err) { return err.substr(err.find("--")); };
    EXPECT_EQ(says(planned.err), says(ran.err)) << chapter;
  }
}

}  // namespace
}  // namespace ladder::test
