// 21_moe against PyTorch: loss and gradient norm of 20 steps, with the losses and the bias of the
// routers.
#include "tests/golden/golden.h"

namespace ladder::test {
namespace {

class GoldenExperts : public Golden, public ::testing::WithParamInterface<GoldenCase> {};
INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenExperts, golden_cases({"adamw_moe"}), golden_name);

TEST_P(GoldenExperts, Says) {
  const auto [name, backend] = GetParam();
  expect_golden(name, backend);
}

class GoldenExpertControls : public Golden {};

TEST_F(GoldenExpertControls, OtherLoss) { expect_other("adamw_moe", {{"balance-loss", 0.4}}); }
TEST_F(GoldenExpertControls, OtherZ) { expect_other("adamw_moe", {{"z-loss", 0.09}}); }
TEST_F(GoldenExpertControls, OtherBias) { expect_other("adamw_moe", {{"bias-rate", 0.005}}); }
TEST_F(GoldenExpertControls, OtherRouter) { expect_other("adamw_moe", {{"router", "sigmoid"}}); }
TEST_F(GoldenExpertControls, OtherWeights) {
  expect_other("adamw_moe", {{"no-renormalize", true}});
}

}  // namespace
}  // namespace ladder::test
