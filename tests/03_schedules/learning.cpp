// 03_schedules learns.
#include "tests/common/learning.h"

namespace ladder::test {
namespace {

class ScheduleLearning : public Learning {};

TEST_F(ScheduleLearning, WsdWithARamp) {
  expect_learns("03_schedules", "--lr 2e-3 --schedule wsd --warmup 5");
}

}  // namespace
}  // namespace ladder::test
