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

TEST_P(BadRanks, BatchesThatCannotBeShared) {
  expect_refused(
      {{"--ranks 4 --batch 6",
        "a batch of 6 does not suit 4 ranks; legal are 4 times 1, 2, 4, 8, ..."},
       {"--ranks 2 --batch 12", "a batch of 12 does not suit 2 ranks; legal are 2 times 1, 2, 4"},
       {"--ranks 8 --batch 4", "a batch of 4 does not suit 8 ranks; legal are 8 times 1, 2, 4"},
       {"--ranks 4 --batch 6 --reduction ring",
        "a batch of 6 does not suit 4 ranks; legal are 4 times any number from 1"},
       {"--ranks 2 --batch 8 --micro-batch 3",
        "--micro-batch 3 does not suit a batch of 4; legal are 1, 2, 4"},
       {"--ranks 2 --batch 16 --micro-batch 3", "--micro-batch 3 does not suit a batch of 8"}});
}

TEST_P(BadRanks, Ranks) {
  expect_refused({{"--ranks 3 --batch 12",
                   "--reduction halving halves the ranks again and again, so their number must be "
                   "a power of two, and it is 3; legal with 3 ranks: tree, ring, naive, native"},
                  {"--ranks -2", "--ranks must be from 1 to 4096, not -2"},
                  {"--ranks 5000", "--ranks must be from 1 to 4096, not 5000"},
                  {"--ranks two", "--ranks"},
                  {"--timeout -1", "--timeout must be from 0 to 1000000, not -1"}});
}

TEST_P(BadRanks, Communication) {
  expect_refused({{"--ddp sometimes", "{naive,bucketed,overlapped}"},
                  {"--reduction fast", "{halving,tree,ring,naive,native}"},
                  {"--bucket-mb -1", "--bucket-mb must be from 0 to 1000000, not -1"},
                  {"--bucket-mb nan", "--bucket-mb must be from 0 to 1000000, not nan"}});
}

TEST_P(BadRanks, Faults) {
  const std::string legal =
      "; legal are KIND:OPERATION:N, where KIND is skip, corrupt, twice, swap, stall, die or fail, "
      "OPERATION all_reduce, reduce_scatter, all_gather, broadcast, all_to_all or recv (never "
      "twice), and N at "
      "least 0";
  for (const std::string fault :
       {"skip", "skip:all_reduce", "skip:all_reduce:", "skip:all_reduce:-1", "skip:all_reduce:1x",
        "lose:all_reduce:1", ":all_reduce:1", "skip::1", "skip:everything:1", "skip:send:1",
        "skip:barrier:0", "twice:recv:0"})
    expect_refused(BadInput{"--fault " + fault, "--fault " + fault + legal});
  expect_refused(
      BadInput{"--fault stall:all_reduce:0", "nobody would notice; legal from --ranks 2 on"});
}

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

TEST_P(BadRanks, MemoryLimitIsThatOfARank) {
  expect_refused(BadInput{"--ranks 4 --memory-limit 1MB", "more than --memory-limit 1048576"});
}

}  // namespace
}  // namespace ladder::test
