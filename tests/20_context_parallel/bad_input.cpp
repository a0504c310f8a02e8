// Bad input that chapter 20 refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadContext : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadContext, ::testing::Values("20_context_parallel"),
                         chapter_name);

TEST_P(BadContext, Degrees) {
  const std::string llama = "--model llama-nano --micro-batch 1 ";
  expect_refused({{"--cp 0", "--cp 0: legal are 1, 2, 4, 8"},
                  {"--cp 16", "--cp 16: legal are 1, 2, 4, 8"},
                  {llama + "--cp 3 --seq-len 384", "--cp 3: it must be 1, 2, 4 or 8"},
                  {llama + "--cp 2", "at most 1 (the leaves of a sum over 16 tokens)"},
                  {llama + "--cp 4 --seq-len 128", "legal are 1, 2"},
                  {llama + "--cp 8 --seq-len 511", "2 cp must divide them; legal are 1"},
                  {llama + "--cp 4 --seq-len 260", "legal are 1, 2"},
                  {llama + "--cp 4 --ranks 6 --seq-len 512",
                   "--cp 4 with 6 ranks; legal are multiples of 4 ranks, or --cp 1, 2"}});
}

TEST_P(BadContext, WhatAWayCannotDo) {
  const std::string llama = "--model llama-nano --micro-batch 1 --seq-len 512 ";
  expect_refused(
      {{llama + "--cp 8 --context ulysses",
        "--cp 8 must divide 4 heads of keys and values; legal are 1, 2, 4, or --context gather"},
       {"--context star", "{gather,ulysses,ring}"},
       {"--order random", "{zigzag,contiguous}"},
       {"--cp 2 --order contiguous", "legal is --context ring"},
       {"--model llama-nano --seq-len 512 --cp 2 --batch 4", "legal is --micro-batch 1"},
       {"--model llama-nano --seq-len 512 --cp 2 --micro-batch 2", "legal is --micro-batch 1"},
       {llama + "--cp 2 --ranks 4 --batch 3", "a batch of 3 does not suit 2 ranks"}});
}

}  // namespace
}  // namespace ladder::test
