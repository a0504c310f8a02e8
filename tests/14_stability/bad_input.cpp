// Bad input that chapter 14 refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadStability : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadStability, ::testing::Values("14_stability"), chapter_name);

TEST_P(BadStability, Flags) {
  expect_refused({{"--agc -0.1", "--agc must be at least 0, not -0.1"},
                  {"--agc inf", "--agc must be at least 0, not inf"},
                  {"--spike-guard -3", "--spike-guard must be at least 0, not -3"},
                  {"--spike-guard nan", "--spike-guard must be at least 0, not nan"},
                  {"--bad-batch -7", "--bad-batch"}});
}

}  // namespace
}  // namespace ladder::test
