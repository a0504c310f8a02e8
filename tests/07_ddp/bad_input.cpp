// Bad input that every chapter from 07 to 10 refuses.
#include "tests/common/ranks.h"
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

std::vector<std::string> chapters() {
  std::vector<std::string> all;
  for (const DataParallel& row : data_parallel()) all.push_back(row.chapter);
  return all;
}

class BadRanks : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadRanks, ::testing::ValuesIn(chapters()), chapter_name);

TEST_P(BadRanks, APlanOverTheLimitIsPrintedOnce) {
  const Ended ended = run(GetParam(), small_run("--ranks 4 --batch 8 --memory-limit 1MB"));
  EXPECT_EQ(ended.status, 2);
  const size_t first = ended.out.find("predicted");
  EXPECT_NE(first, std::string::npos) << ended.out;
  EXPECT_EQ(ended.out.find("predicted", first + 1), std::string::npos) << ended.out;
}

TEST_P(BadRanks, CheckpointsThatAreDamaged) {
  const std::string small = "--layers 1 --channels 16 --heads 2 --ranks 2 ";
  train(GetParam(), small + "--steps 1 --save good");
  std::string bytes = read("good/current/optimizer.safetensors");
  bytes.at(bytes.size() - 100) ^= 1;
  write("good/current/optimizer.safetensors", bytes);
  expect_refused(BadInput{small + "--load good", "optimizer.safetensors: damaged"});
}

}  // namespace
}  // namespace ladder::test
