// Bad input that chapter 11 refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadTensorParallel : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadTensorParallel, ::testing::Values("11_tensor_parallel"),
                         chapter_name);

TEST_P(BadTensorParallel, Degrees) {
  expect_refused(
      {{"--tp 3", "legal are 1, 2, 4, 8"},
       {"--tp 16", "legal are 1, 2, 4, 8"},
       {"--tp 1000000000", "--tp 1000000000: legal are 1, 2, 4, 8, and 0"},
       {"--tp -1", "legal are 1, 2, 4, 8"},
       {"--tp 2 --ranks 4",
        "--tp 2 with 4 ranks: all of them share each layer; legal are --tp 4, or 0"},
       {"--tp 8 --channels 64", "legal are 1, 2, 4"},
       {"--heads 6 --channels 96 --tp 3", "it must be 1, 2, 4 or 8 (sums have 8 leaves)"},
       {"--tp 4 --heads 2", "legal are 1, 2"}});
}

TEST_P(BadTensorParallel, SequencesThatDoNotFallIntoEqualParts) {
  expect_refused(
      {{"--tp 8 --sequence-parallel --seq-len 12", "legal are 1, 2, 4, or no --sequence-parallel"},
       {"--tp 2 --sequence-parallel --seq-len 7", "legal are 1, or no --sequence-parallel"},
       {"--tp 8 --sequence-parallel --seq-len 4 --heads 2", "legal are 1, 2"},
       {"--tp 4 --sequence-parallel --seq-len 6 --heads 2 --channels 64", "legal are 1, 2"}});
}

TEST_P(BadTensorParallel, WhatLooksAtWholeTensors) {
  for (const std::string name : {"adafactor", "adamw8bit"})
    expect_refused(BadInput{"--tp 2 --optimizer " + name, "legal are sgd, adam, adamw, lion"});
}

}  // namespace
}  // namespace ladder::test
