// Bad input that every chapter from 05 on refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadPrecision : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadPrecision,
                         ::testing::ValuesIn(some_chapters_from("05_mixed_precision")),
                         chapter_name);

TEST_P(BadPrecision, Precision) {
  expect_refused({{"--precision int8", "--precision"},
                  {"--precision BF16", "--precision"},
                  {"--precision 16", "bf16"}});
}

TEST_P(BadPrecision, LossScale) {
  expect_refused(
      {{"--loss-scale 3", "--loss-scale must be a power of two from 2^-24 to 2^24, not 3"},
       {"--loss-scale 0", "a power of two from 2^-24 to 2^24, not 0"},
       {"--loss-scale -2", "a power of two from 2^-24 to 2^24, not -2"},
       {"--loss-scale 0.75", "a power of two from 2^-24 to 2^24, not 0.75"},
       {"--loss-scale nan", "a power of two from 2^-24 to 2^24, not nan"},
       {"--loss-scale inf", "--loss-scale"},
       {"--loss-scale 33554432", "a power of two from 2^-24 to 2^24, not 33554432"},
       {"--loss-scale big", "--loss-scale"},
       {"--loss-scale-window 0", "--loss-scale-window must be at least 1, not 0"},
       {"--loss-scale-window -5", "--loss-scale-window must be at least 1, not -5"}});
}

TEST_P(BadPrecision, Master) {
  expect_refused({{"--master 16", "--master 16 takes every --precision but fp32"},
                  {"--master 8 --precision bf16", "--master"},
                  {"--master 64 --precision fp16", "--master"}});
}

}  // namespace
}  // namespace ladder::test
