// Bad input that chapter 15 refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadBatchSize : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadBatchSize, ::testing::ValuesIn(chapters_from("15_batch_size")),
                         chapter_name);

TEST_P(BadBatchSize, Ramp) {
  for (const std::string ramp :
       {"2", "2:", ":3", "a:b", "2:3x", "x2:3", "2:3:4", "2.5:3", "2;3", "99999999999999999999:3"})
    expect_refused({"--batch-ramp " + ramp, "it takes BATCH:UNTIL_STEP, as in 4:100,8:300"});
  for (const std::string ramp : {"0:3", "-1:3", "5:3", "2:3,5:4"})
    expect_refused({"--batch-ramp " + ramp, "the batch must be 1 to --batch 4"});
  for (const std::string ramp : {"2:0", "2:-1"})
    expect_refused({"--batch-ramp " + ramp, "the step must be above 0"});
  for (const std::string ramp : {"2:3,3:3", "2:3,3:2"})
    expect_refused({"--batch-ramp " + ramp, "the step must be above 3"});
}

TEST_P(BadBatchSize, StagesThatDoNotSuit) {
  expect_refused(
      {{"--batch-ramp 3:2 --micro-batch 2", "does not suit a batch of 3; legal are 1, 3"},
       {"--ranks 2 --batch 8 --batch-ramp 6:1", "a batch of 6 does not suit 2 ranks"},
       {"--ranks 2 --batch 8 --batch-ramp 2:1 --micro-batch 3",
        "--micro-batch 3 does not suit a batch of"}});
}

TEST_P(BadBatchSize, NoiseScale) {
  expect_refused(
      {{"--noise-scale", "--noise-scale takes a --micro-batch below --batch 4"},
       {"--noise-scale --micro-batch 4", "a --micro-batch below --batch 4, not 4"},
       {"--noise-scale --micro-batch 8", "a --micro-batch below --batch 4"},
       {"--noise-scale --micro-batch 2 --tied-head", "legal is it without --tied-head"}});
}

}  // namespace
}  // namespace ladder::test
