// 07 to 10, and 18: whatever earlier chapters have taught goes on to work, with the bits of 06.
#include <cmath>

#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

class RanksComposition : public SameTrace, public ::testing::WithParamInterface<DataParallel> {
 protected:
  void expect_same(const std::vector<std::string>& all, const std::string& layout) const {
    for (const std::string& flags : all)
      EXPECT_TRUE(same_trace(trace("06_checkpointing", common + flags),
                             trace(GetParam().chapter, common + flags + layout)))
          << flags << layout;
  }

  const std::string common = "--batch 8 --layers 3 ";
};
INSTANTIATE_TEST_SUITE_P(DataParallel, RanksComposition, ::testing::ValuesIn(data_parallel()),
                         row_name);

TEST_P(RanksComposition, Schedules) {
  expect_same({"--schedule cosine --warmup 2 --min-lr 1e-4 --decay-steps 4",
               "--schedule wsd --decay-steps 2 --warmup-tokens 300"},
              " --ranks 4");
}

TEST_P(RanksComposition, Clipping) {
  expect_same({"--clip 0.1"}, " --ranks 4 --micro-batch 1");
  expect_same({"--clip 0.1 --precision bf16"}, " --ranks 2");
}

TEST_P(RanksComposition, Precisions) {
  expect_same({"--precision bf16 --master 16", "--precision fp16 --loss-scale 1024"}, " --ranks 4");
}

// Every rank skips the step, also if only one sees the overflow. The norm is NaN then.
TEST_P(RanksComposition, Overflows) {
  must_end_with(3);  // no step is taken
  const auto lines = [&](const std::string& chapter, const std::string& layout) {
    std::filesystem::remove(path("trace.jsonl"));
    const Ended ended = train(chapter,
                              "--precision fp16 --loss-scale 16777216 --layers 2 --batch 8 "
                              "--trace trace.jsonl " +
                                  layout);
    EXPECT_NE(ended.out.find("skipped, overflow"), std::string::npos) << chapter;
    return read("trace.jsonl");
  };
  const std::string one = lines("06_checkpointing", "");
  EXPECT_NE(one.find("nan"), std::string::npos);
  EXPECT_EQ(lines(GetParam().chapter, "--ranks 2 --micro-batch 1"), one);
  EXPECT_EQ(lines(GetParam().chapter, "--ranks 4"), one);
}

TEST_P(RanksComposition, Optimizers) {
  expect_same({"--optimizer sgd --momentum 0.9 --nesterov", "--optimizer adam", "--optimizer lion",
               "--optimizer adamw8bit", "--optimizer adamw8bit --precision bf16"},
              " --ranks 4 --micro-batch 1");
  if (!GetParam().sharded) expect_same({"--optimizer adafactor"}, " --ranks 4");
}

TEST_P(RanksComposition, Recomputation) {
  expect_same({"--recompute every:2", "--precision bf16 --recompute full", "--recompute selective",
               "--precision fp16 --recompute sqrt"},
              " --ranks 2 --micro-batch 2");
}

TEST_P(RanksComposition, NegativeControlOtherFlagsDiffer) {
  for (const std::string other : {"--clip 0.1", "--precision bf16", "--warmup 2"})
    EXPECT_TRUE(different_trace(trace("06_checkpointing", common),
                                trace(GetParam().chapter, common + "--ranks 4 " + other)))
        << other;
}

}  // namespace
}  // namespace ladder::test
