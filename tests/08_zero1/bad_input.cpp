// Bad input that every chapter from 08 to 10 refuses: options that want whole tensors.
#include "tests/common/ranks.h"
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

std::vector<std::string> chapters() {
  std::vector<std::string> all;
  for (const DataParallel& row : data_parallel())
    if (row.sharded) all.push_back(row.chapter);
  return all;
}

class BadSharding : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadSharding, ::testing::ValuesIn(chapters()), chapter_name);

TEST_P(BadSharding, Adafactor) {
  expect_refused(
      BadInput{"--ranks 2 --optimizer adafactor",
               "2 ranks hold chunks of them; legal are sgd, adam, adamw, lion, adamw8bit"});
  train(GetParam(), "--steps 1 --layers 1 --optimizer adafactor");
}

}  // namespace
}  // namespace ladder::test
