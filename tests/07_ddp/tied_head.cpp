// --tied-head: the gradient of the embedding is two sums, which every layout completes before it
// adds them. 07 to 10 on many ranks have the bits of one, and the chapters before and beside them
// have each other's.
#include "tests/common/memory.h"
#include "tests/common/ranks.h"
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

const std::string kTied = "--tied-head --clip 1 ";

class TiedRanks : public SameTraceRanks {};
INSTANTIATE_TEST_SUITE_P(DataParallel, TiedRanks,
                         ::testing::Combine(::testing::ValuesIn(data_parallel()),
                                            ::testing::ValuesIn(tiers())),
                         row_and_tier);

TEST_P(TiedRanks, HaveTheBitsOfOne) {
  const Trace one = alone(kTied + "--batch 16");
  const int shift = static_cast<int>(tier_index());
  for (const int count : {1, 2, 4}) {
    const Cut cut{count, 1 << ((count + shift) % 3)};
    EXPECT_TRUE(same_trace(one, ranks(kTied + flags_of(cut, 16)))) << flags_of(cut, 16);
  }
}

class TiedRanksMore : public SameTraceSmall, public ::testing::WithParamInterface<DataParallel> {
 protected:
  Trace ranks(const std::string& flags) const { return trace(GetParam().chapter, flags); }
};
INSTANTIATE_TEST_SUITE_P(DataParallel, TiedRanksMore, ::testing::ValuesIn(data_parallel()),
                         row_name);

TEST_P(TiedRanksMore, EveryWayToCommunicate) {
  const Trace one = trace("06_checkpointing", kTied + "--batch 16");
  for (const std::string& way : GetParam().ways)
    EXPECT_TRUE(same_trace(one, ranks(kTied + way + flags_of({4, 2}, 16)))) << way;
}

TEST_P(TiedRanksMore, OddSizesAndRecomputation) {
  const std::string odd = kTied +
                          "--model tiny --channels 24 --heads 3 --seq-len 9 --recompute full "
                          "--vocab 300 --eval-every 1 --sample 2 ";
  const Trace one = trace("06_checkpointing", odd + "--batch 8");
  EXPECT_TRUE(same_trace(one, ranks(odd + flags_of({4, 2}, 8))));
}

TEST_P(TiedRanksMore, OtherRanksGoOn) {
  const std::string flags = kTied + "--batch 8 --precision bf16 ";
  const Trace whole = trace("06_checkpointing", flags);
  const Trace first = trace(GetParam().chapter, flags + "--ranks 4 --save half", {0, kHalf});
  for (const std::string& chapter : {GetParam().chapter, std::string("07_ddp")})
    EXPECT_TRUE(same_trace(
        whole, joined(first, trace(chapter, flags + "--ranks 2 --load half", {kHalf, kSteps}))))
        << chapter;
}

// The head's sum is the first that travels.
TEST_P(TiedRanksMore, NegativeControlAHeadsSumThatIsLostIsSeen) {
  const std::string flags = "--tied-head --batch 8 --bucket-mb 0 ";
  const Trace one = trace("06_checkpointing", "--tied-head --batch 8");
  EXPECT_TRUE(same_trace(one, ranks(flags + "--ranks 2")));
  EXPECT_TRUE(different_trace(one, ranks(flags + "--ranks 2 --fault skip:" + GetParam().sums)));
}

TEST_P(TiedRanksMore, NegativeControlAHeadOfItsOwnDiffers) {
  EXPECT_TRUE(different_trace(ranks("--ranks 2"), ranks("--ranks 2 --tied-head")));
}

class TiedMemory : public MemoryRuns, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Chapters, TiedMemory, ::testing::ValuesIn(chapters_from("01_sgd")),
                         chapter_name);

TEST_P(TiedMemory, AndParametersAreAsPredicted) {
  const auto found = report(GetParam(), "--steps 1 --layers 2 --batch 4 --tied-head");
  EXPECT_TRUE(as_predicted(found));
  const int64_t L = 2, C = kChannels, V = 256, T = 16;
  EXPECT_EQ(found["model"]["parameters"], (V + T) * C + L * (12 * C * C + 13 * C) + 2 * C);
}

TEST_P(TiedRanksMore, BytesAreAsPredicted) {
  for (const std::string flags : {"--ranks 2 --batch 8", "--ranks 4 --batch 8 --micro-batch 1"}) {
    const auto found = report(GetParam().chapter, "--layers 2 --steps 1 --tied-head " + flags);
    EXPECT_TRUE(as_predicted(found)) << flags;
    const auto& traffic = found["extra"]["traffic"];
    EXPECT_GT(traffic["measured"], 0) << flags;
    EXPECT_EQ(traffic["predicted"], traffic["measured"]) << flags;
  }
}

/// Chapters on one rank, and those whose ranks share layers.
class TiedChapters : public SameTraceSmall {};

TEST_F(TiedChapters, HaveTheBitsOfEachOther) {
  const Trace sgd = trace("01_sgd", "--tied-head");
  for (const std::string& chapter : chapters_from("02_adamw"))
    EXPECT_TRUE(same_trace(sgd, trace(chapter, "--tied-head --optimizer sgd"))) << chapter;
}

TEST_F(TiedChapters, EveryLayoutHasTheBitsOfOneRank) {
  const Trace one = trace("06_checkpointing", kTied + "--batch 8");
  for (const auto& [chapter, flags] : std::vector<std::pair<std::string, std::string>>{
           {"11_tensor_parallel", "--ranks 2"},
           {"11_tensor_parallel", "--ranks 4 --micro-batch 2 --sequence-parallel"},
           {"12_pipeline_parallel", "--micro-batch 2"},
           {"13_3d_parallel", "--tp 2 --dp 2 --micro-batch 1"},
           {"13_3d_parallel", "--dp 4 --bucket-mb 0"},
           {"16_fp8", "--ranks 2 --micro-batch 2"},
           {"17_head_chunks", "--micro-batch 4 --head-chunk 1"},
           {"18_offload", "--ranks 2 --micro-batch 1 --offload optimizer,weights"}})
    EXPECT_TRUE(same_trace(one, trace(chapter, kTied + "--batch 8 " + flags)))
        << chapter << " " << flags;
}

class TiedRefusals : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, TiedRefusals,
                         ::testing::Values("12_pipeline_parallel", "13_3d_parallel"), chapter_name);

TEST_P(TiedRefusals, Stages) {
  expect_refused(BadInput{"--tied-head --pp 2", "legal are --pp 1, or no --tied-head"});
}

}  // namespace
}  // namespace ladder::test
