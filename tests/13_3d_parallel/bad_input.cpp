// Bad input that chapter 13 refuses; of a mesh that is only planned, too.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadMesh : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadMesh, ::testing::Values("13_3d_parallel"), chapter_name);

TEST_P(BadMesh, Shapes) {
  expect_refused(
      {{"--tp 2 --pp 2 --ranks 6",
        "--tp 2 x --dp 1 x --pp 2 are 4 ranks, not 6; legal are axes whose product is 6"},
       {"--dp 8 --ranks 4", "--tp 1 x --dp 8 x --pp 1 are 8 ranks, not 4"},
       {"--tp 3", "legal are 1, 2, 4, 8"},
       {"--tp 16", "legal are 1, 2, 4, 8"},
       {"--tp 4 --heads 2", "legal are 1, 2"},
       {"--pp 3", "--pp 3 must divide 8 layers; legal are 1, 2, 4, 8"},
       {"--dp -1", "--dp must be from 0 to 1048576, not -1"},
       {"--tp -1", "--tp -1: legal are 1, 2, 4, 8, and 0"},
       {"--pp -1", "--pp must be from 0"},
       {"--pp 1000000000", "--pp must be from 0 to 4096, not 1000000000"},
       {"--dp two", "--dp"},
       {"--dp 100000", "--ranks must be from 1 to 4096, not 100000"},
       {"--tp 8 --dp 999999 --pp 4096", "ranks, and at most 1048576 are legal"}});
}

TEST_P(BadMesh, WorldIsOfAPlan) {
  expect_refused({{"--world 8", "--world is for --plan-only"},
                  {"--world 8 --tp 2 --dp 2 --pp 2", "--world is for --plan-only"},
                  {"--plan-only --world 8 --ranks 4", "--ranks excludes --world"},
                  {"--plan-only --world 4096 --pp 4096 --layers 4096 --batch 65536 --micro-batch 1",
                   "a pipeline of 4096 parts and 65536 micro-batches is too long"},
                  {"--world -8", "--world must be from 0"}});
}

TEST_P(BadMesh, APlanWritesItsReportAlone) {
  for (const std::string output : {"--trace trace.jsonl", "--timeline timeline.json", "--save new"})
    expect_refused(BadInput{"--plan-only --world 8 " + output,
                            output + ": --plan-only takes no step; legal with it is --report"});
}

TEST_P(BadMesh, Batches) {
  expect_refused(
      {{"--dp 4 --batch 6", "a batch of 6 does not suit 4 ranks; legal are 4 times 1, 2, 4, 8"},
       {"--dp 2 --tp 2 --batch 6", "a batch of 6 does not suit 2 ranks"},
       {"--dp 2 --batch 8 --micro-batch 3", "--micro-batch"},
       {"--tp 2 --sequence-parallel --seq-len 7", "legal are 1, or no --sequence-parallel"},
       {"--dp 3 --batch 12 --reduction halving", "--reduction halving"}});
}

TEST_P(BadMesh, Schedules) {
  const std::string interleaved = "--pipeline interleaved --batch 8 --micro-batch 1 ";
  expect_refused(
      {{interleaved + "--pp 2 --chunks 3", "3 parts on each must divide 8 layers; legal are 1"},
       {interleaved + "--pp 8", "2 parts on each must divide 8 layers; legal are 1, 2, 4"},
       // 8 micro-batches are 2 of each share.
       {interleaved + "--pp 4 --dp 4",
        "interleaved with 4 stages and 2 micro-batches; legal are 4"}});
}

TEST_P(BadMesh, WhatRanksHaveApart) {
  for (const auto& [flags, says] :
       {std::pair{"--tp 2 --optimizer adafactor", "legal are sgd, adam, adamw, lion"},
        {"--dp 2 --optimizer adafactor", "legal are sgd, adam, adamw, lion, adamw8bit"},
        {"--pp 2 --optimizer adafactor", "legal are sgd, adam, adamw, lion, adamw8bit"},
        {"--tp 2 --optimizer adamw8bit", "legal are sgd, adam, adamw, lion"}}) {
    expect_refused(BadInput{flags, says});
    expect_refused(BadInput{std::string(flags) + " --plan-only", says});
  }
}

TEST_P(BadMesh, MemoryLimit) {
  const std::string wide = "--pp 4 --dp 2 --batch 512 --micro-batch 64 ";
  for (const std::string only : {"", "--plan-only "})
    expect_refused(std::vector<BadInput>{
        {only + "--pp 4 --memory-limit 1MB", "more than --memory-limit 1048576"},
        {only + wide + "--memory-limit 64MB", "more than --memory-limit 67108864; --recompute "}});
}

}  // namespace
}  // namespace ladder::test
