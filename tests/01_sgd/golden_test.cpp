// 01_sgd against torch.optim.SGD: loss and gradient norm of 20 steps.
#include "tests/golden/golden.h"

#include <cmath>

namespace ladder::test {
namespace {

class GoldenSgd : public Golden, public ::testing::WithParamInterface<GoldenCase> {};
INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenSgd, golden_cases({"sgd", "momentum", "nesterov"}),
                         golden_name);

TEST_P(GoldenSgd, Says) {
  const auto [name, backend] = GetParam();
  expect_golden(name, backend);
}

class GoldenSgdControls : public Golden {};

TEST_F(GoldenSgdControls, OtherRate) { expect_other("sgd", {{"lr", 0.1001}}); }
TEST_F(GoldenSgdControls, OtherMomentum) { expect_other("momentum", {{"momentum", 0.901}}); }
TEST_F(GoldenSgdControls, NoNesterov) { expect_other("nesterov", {{"nesterov", false}}); }
TEST_F(GoldenSgdControls, OtherSeed) { expect_other("nesterov", {{"seed", 1}}); }

TEST(GoldenDeviation, InfiniteWhereNothingCanBeCompared) {
  const double nan = std::nan("");
  EXPECT_EQ(deviation({2, 3}, {2, 2}), 0.5);
  EXPECT_TRUE(std::isinf(deviation({1, nan}, {1, 1})));
  EXPECT_TRUE(std::isinf(deviation({nan, 1}, {1, 1})));
  EXPECT_TRUE(std::isinf(deviation({1}, {1, 1})));
}

}  // namespace
}  // namespace ladder::test
