// 14_stability learns with all of it on.
#include "tests/common/learning.h"

namespace ladder::test {
namespace {

class StabilityLearning : public Learning {};

TEST_F(StabilityLearning, EverythingOn) {
  expect_learns("14_stability", "--lr 2e-3 --clip 1 --agc 0.2 --spike-guard 6 --micro-batch 2");
}

}  // namespace
}  // namespace ladder::test
