// 04_clipping learns with all of it on.
#include "tests/common/learning.h"

namespace ladder::test {
namespace {

class ClippingLearning : public Learning {};

TEST_F(ClippingLearning, EverythingOn) {
  expect_learns("04_clipping", "--lr 2e-3 --clip 1 --micro-batch 2");
}

}  // namespace
}  // namespace ladder::test
