// Bad input that every chapter from 06 on refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadCheckpointing : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadCheckpointing,
                         ::testing::ValuesIn(some_chapters_from("06_checkpointing")), chapter_name);

TEST_P(BadCheckpointing, Recompute) {
  const std::string legal =
      "legal are none, every:1 to every:8, sqrt, full, selective, selective:attention "
      "and selective:mlp";
  for (const std::string policy : {"every:0", "every:9", "every:99", "every:-2", "every:2x",
                                   "every:", "every", "sometimes", "Full", "2"})
    expect_refused(BadInput{"--recompute " + policy, "--recompute " + policy + "; " + legal});
  expect_refused(BadInput{"--layers 3 --recompute every:4", "every:1 to every:3"});
}

TEST_P(BadCheckpointing, MemoryLimit) {
  for (const std::string limit :
       {"-1", "8EB", "99999999999999999999", "1.5GB", "1.5", "much", "3parsecs"})
    expect_refused(BadInput{"--memory-limit " + limit,
                            limit + " is no size; legal is a whole number, with a unit or "
                                    "without, as 1536MB, below 8EB"});
}

}  // namespace
}  // namespace ladder::test
