// Bad input that every chapter from 04 on refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadClipping : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadClipping,
                         ::testing::ValuesIn(some_chapters_from("04_clipping")), chapter_name);

TEST_P(BadClipping, MicroBatch) {
  expect_refused(
      {{"--micro-batch 3", "does not suit a batch of 4; legal are 1, 2, 4"},
       {"--micro-batch -1", "--micro-batch must be at least 0, not -1"},
       {"--batch 12 --micro-batch 8", "does not suit a batch of 12; legal are 1, 2, 4, 12"},
       // Thirds divide the batch, and are still no sub-trees of it.
       {"--batch 12 --micro-batch 3", "does not suit a batch of 12; legal are 1, 2, 4, 12"},
       {"--batch 12 --micro-batch 6", "does not suit a batch of 12; legal are 1, 2, 4, 12"},
       {"--accumulate pairs", "--accumulate"}});
}

TEST_P(BadClipping, Flags) {
  expect_refused({{"--clip -1", "--clip must be at least 0, not -1"},
                  {"--clip nan", "--clip must be at least 0, not nan"},
                  {"--clip inf", "--clip must be at least 0, not inf"}});
}

}  // namespace
}  // namespace ladder::test
