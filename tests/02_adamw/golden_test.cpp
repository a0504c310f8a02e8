// 02_adamw against PyTorch's torch.optim.Adam and AdamW: 20 steps, loss and gradient norm of each.
#include "tests/golden/golden.h"

namespace ladder::test {
namespace {

class GoldenAdam : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(GoldenAdam, IsWhatPyTorchSays) {
  const auto [name, backend] = GetParam();
  expect_golden(name, backend);
}
INSTANTIATE_TEST_SUITE_P(Golden, GoldenAdam,
                         ::testing::Combine(::testing::Values("adam", "adamw", "adamw_odd"),
                                            ::testing::Values("cpu", "ref")),
                         case_name);

TEST(GoldenAdamControl, OtherRate) { expect_not_golden("adamw", {{"lr", 2.001e-3}}); }
TEST(GoldenAdamControl, OtherBeta1) { expect_not_golden("adamw", {{"beta1", 0.901}}); }
TEST(GoldenAdamControl, OtherBeta2) { expect_not_golden("adamw_odd", {{"beta2", 0.98}}); }
TEST(GoldenAdamControl, OtherEps) { expect_not_golden("adamw", {{"eps", 2e-6}}); }
TEST(GoldenAdamControl, OtherDecay) { expect_not_golden("adamw", {{"weight-decay", 0.2}}); }
TEST(GoldenAdamControl, OtherL2) { expect_not_golden("adam", {{"weight-decay", 0.2}}); }
TEST(GoldenAdamControl, DecayElsewhere) { expect_not_golden("adam", {{"optimizer", "adamw"}}); }

}  // namespace
}  // namespace ladder::test
