// Every optimizer of 02_adamw learns.
#include "tests/common/learning.h"

namespace ladder::test {
namespace {

class OptimizerLearning : public Learning {
 protected:
  void expect(const std::string& optimizer, double nats) const {
    expect_learns("02_adamw", "--optimizer " + optimizer, nats);
  }
};

TEST_F(OptimizerLearning, Adam) { expect("adam --lr 5e-3", 3); }
TEST_F(OptimizerLearning, AdamW) { expect("adamw --lr 5e-3", 3); }
TEST_F(OptimizerLearning, Lion) { expect("lion --lr 1e-3", 2.2); }
TEST_F(OptimizerLearning, Adafactor) { expect("adafactor --lr 1e-2", 2.7); }
TEST_F(OptimizerLearning, AdamW8bit) { expect("adamw8bit --lr 5e-3", 3); }

}  // namespace
}  // namespace ladder::test
