// Bad input that chapter 10 refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadZero3 : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadZero3, ::testing::Values("10_zero3"), chapter_name);

TEST_P(BadZero3, Flags) {
  expect_refused({{"--prefetch 2", "--prefetch: 2 not in {0,1}"},
                  {"--reshard-after-forward yes", "--reshard-after-forward"},
                  {"--offload weights", "--offload belongs to 18_offload"}});
}

}  // namespace
}  // namespace ladder::test
