// 01_sgd learns.
#include "tests/common/learning.h"

namespace ladder::test {
namespace {

class SgdLearning : public Learning {};

TEST_F(SgdLearning, Plain) { expect_learns("01_sgd", "--lr 0.1"); }
TEST_F(SgdLearning, Momentum) { expect_learns("01_sgd", "--lr 0.01 --momentum 0.9"); }
TEST_F(SgdLearning, Nesterov) { expect_learns("01_sgd", "--lr 0.01 --momentum 0.9 --nesterov"); }

}  // namespace
}  // namespace ladder::test
