// Bad input that 19_llama refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadBlock : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadBlock, ::testing::Values("19_llama"), chapter_name);

// A run without a table of positions has any length.
TEST_P(BadBlock, NotMoreTokensThanPositionsWithRope) {
  train("19_llama", "--position rope --seq-len 24 --layers 1");
  expect_refused(BadInput{"--model llama-nano --position learned --seq-len 17", "16 positions"});
}

// The model is looked at when all flags have changed it.
TEST_P(BadBlock, NotHeadsThatAFlagMakesFit) {
  train("19_llama", "--model llama-nano --heads 2 --kv-heads 1 --layers 1");
  train("19_llama", "--model llama-nano --channels 60 --heads 15 --kv-heads 5 --layers 1");
  expect_refused({{"--model llama-nano --heads 2", "--kv-heads 4 must divide --heads 2"},
                  {"--model llama-nano --heads 0", "--heads must be from 1 to 128, not 0"},
                  {"--heads 3", "--heads 3 must divide --channels 128"}});
}

}  // namespace
}  // namespace ladder::test
