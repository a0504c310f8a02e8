// Every optimizer of 02_adamw learns.
#include "tests/common/learning.h"

namespace ladder::test {
namespace {

class OptimizerLearning : public Learning {
 protected:
  void expect(const std::string& optimizer) const {
    expect_learns("02_adamw", "--optimizer " + optimizer);
  }
};

TEST_F(OptimizerLearning, Adam) { expect("adam --lr 2e-3"); }
TEST_F(OptimizerLearning, AdamW) { expect("adamw --lr 1e-3"); }
TEST_F(OptimizerLearning, Lion) { expect("lion --lr 5e-4"); }
TEST_F(OptimizerLearning, Adafactor) { expect("adafactor --lr 1e-3"); }
TEST_F(OptimizerLearning, AdamW8bit) { expect("adamw8bit --lr 1e-3"); }

}  // namespace
}  // namespace ladder::test
