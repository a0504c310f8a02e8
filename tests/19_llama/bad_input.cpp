// Bad input that 19_llama refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadBlock : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadBlock, ::testing::Values("19_llama"), chapter_name);

TEST_P(BadBlock, Parts) {
  expect_refused({{"--norm batch", "{layer,rms}"},
                  {"--mlp relu", "{gelu,swiglu}"},
                  {"--position alibi", "{learned,rope}"},
                  {"--norm rms --seq-len 17", "--seq-len 17 is longer than the 16 positions"}});
}

TEST_P(BadBlock, Sizes) {
  expect_refused({{"--kv-heads 0", "--kv-heads must be from 1 to 8, not 0"},
                  {"--kv-heads 16", "--kv-heads must be from 1 to 8, not 16"},
                  {"--kv-heads 3", "--kv-heads 3 must divide --heads 8"},
                  {"--model llama-nano --kv-heads 5", "--kv-heads 5 must divide --heads 8"},
                  {"--hidden 0", "--hidden must be from 1 to 131072, not 0"},
                  {"--hidden 131073", "--hidden must be from 1 to 131072"},
                  {"--position rope --channels 24", "3 channels each, which RoPE turns in pairs"}});
}

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

TEST_P(BadBlock, Theta) {
  for (const std::string theta : {"-1", "1", "nan", "inf", "1e13"})
    expect_refused(
        BadInput{"--position rope --rope-theta " + theta, "--rope-theta must be above 1"});
  expect_refused(BadInput{"--rope-theta 10000", "is for --position rope, not learned"});
}

}  // namespace
}  // namespace ladder::test
