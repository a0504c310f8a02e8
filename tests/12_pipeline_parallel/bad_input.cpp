// Bad input that chapter 12 refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadPipeline : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadPipeline, ::testing::Values("12_pipeline_parallel"),
                         chapter_name);

TEST_P(BadPipeline, Degrees) {
  expect_refused(
      {{"--pp 3", "--pp 3 must divide 8 layers; legal are 1, 2, 4, 8"},
       {"--pp 16", "legal are 1, 2, 4, 8"},
       {"--pp 1000000000", "--pp must be from 0 to 4096, not 1000000000"},
       {"--pp -1", "--pp must be from 0 to 4096, not -1"},
       {"--pp 2 --ranks 4", "--pp 2 with 4 ranks: each of them is a stage; legal are --pp 4, or 0"},
       {"--ranks 3", "legal are 1, 2, 4, 8"},
       {"--pp two", "--pp"}});
}

TEST_P(BadPipeline, Schedules) {
  const std::string interleaved = "--pipeline interleaved --batch 8 --micro-batch 1 ";
  expect_refused(
      {{"--pipeline foo", "{gpipe,1f1b,interleaved,zb-h1}"},
       {"--chunks 0", "--chunks must be at least 1, not 0"},
       {"--chunks -2", "--chunks must be at least 1, not -2"},
       {"--pp 2 --chunks 7", "--chunks is for --pipeline interleaved, not 1f1b"},
       {interleaved + "--pp 2 --chunks 1", "takes --chunks of at least 2, not 1"},
       {interleaved + "--pp 8", "2 parts on each must divide 8 layers; legal are 1, 2, 4"},
       {interleaved + "--pp 2 --chunks 3", "3 parts on each must divide 8 layers; legal are 1"},
       {"--pipeline interleaved --pp 4 --batch 8 --micro-batch 4",
        "interleaved with 4 stages and 2 micro-batches; legal are 4, 8, 12"},
       {"--pipeline interleaved --pp 4 --batch 6 --micro-batch 1",
        "interleaved with 4 stages and 6 micro-batches; legal are 4, 8, 12"}});
}

TEST_P(BadPipeline, WhatStagesDoNotHaveTogether) {
  expect_refused(
      BadInput{"--pp 2 --optimizer adafactor", "legal are sgd, adam, adamw, lion, adamw8bit"});
}

// What is named are policies for the layers of a stage, here 2 of 8.
TEST_P(BadPipeline, MemoryLimitIsThatOfAStage) {
  const std::string wide = "--pp 4 --batch 256 --micro-batch 64 ";
  expect_refused(std::vector<BadInput>{
      {"--pp 4 --memory-limit 1MB", "more than --memory-limit 1048576"},
      {wide + "--memory-limit 64MB", "more than --memory-limit 67108864; --recompute "},
      // Every run is computed again, so the fewest bytes decide: with 32 micro-batches in flight
      // two blocks that they share are less than the inputs of two blocks each.
      {"--pp 4 --batch 32 --micro-batch 1 --pipeline gpipe --memory-limit 23794304",
       "--recompute every:2 takes"}});
}

}  // namespace
}  // namespace ladder::test
