// 01_sgd against PyTorch's torch.optim.SGD: 20 steps, loss and gradient norm of each.
#include "tests/golden/golden.h"

namespace ladder::test {
namespace {

class GoldenSgd : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(GoldenSgd, IsWhatPyTorchSays) {
  const auto [name, backend] = GetParam();
  expect_golden(name, backend);
}
INSTANTIATE_TEST_SUITE_P(Golden, GoldenSgd,
                         ::testing::Combine(::testing::Values("sgd", "momentum", "nesterov"),
                                            ::testing::Values("cpu", "ref")),
                         case_name);

TEST(GoldenSgdControl, OtherRate) { expect_not_golden("sgd", {{"lr", 0.1001}}); }
TEST(GoldenSgdControl, OtherMomentum) { expect_not_golden("momentum", {{"momentum", 0.901}}); }
TEST(GoldenSgdControl, NoNesterov) { expect_not_golden("nesterov", {{"nesterov", false}}); }
TEST(GoldenSgdControl, OtherSeed) { expect_not_golden("nesterov", {{"seed", 1}}); }

TEST(GoldenDeviation, IsInfiniteForWhatCannotBeCompared) {
  const double nan = std::nan("");
  EXPECT_EQ(deviation({2, 3}, {2, 2}), 0.5);
  EXPECT_TRUE(std::isinf(deviation({1, nan}, {1, 1})));
  EXPECT_TRUE(std::isinf(deviation({nan, 1}, {1, 1})));
  EXPECT_TRUE(std::isinf(deviation({1}, {1, 1})));
}

}  // namespace
}  // namespace ladder::test
