// 02_adamw against torch.optim.Adam and AdamW: loss and gradient norm of 20 steps.
#include "tests/golden/golden.h"

namespace ladder::test {
namespace {

class GoldenAdam : public Golden, public ::testing::WithParamInterface<GoldenCase> {};
INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenAdam,
                         golden_cases({"adam", "adamw", "adamw_odd", "adamw_llama", "adamw_tied"}),
                         golden_name);

TEST_P(GoldenAdam, Says) {
  const auto [name, backend] = GetParam();
  expect_golden(name, backend);
}

class GoldenAdamControls : public Golden {};

TEST_F(GoldenAdamControls, OtherRate) { expect_other("adamw", {{"lr", 2.001e-3}}); }
TEST_F(GoldenAdamControls, OtherBeta1) { expect_other("adamw", {{"beta1", 0.901}}); }
TEST_F(GoldenAdamControls, OtherBeta2) { expect_other("adamw_odd", {{"beta2", 0.98}}); }
TEST_F(GoldenAdamControls, OtherHead) { expect_other("adamw_tied", {{"tied-head", false}}); }
TEST_F(GoldenAdamControls, OtherEps) { expect_other("adamw", {{"eps", 2e-6}}); }
TEST_F(GoldenAdamControls, OtherDecay) { expect_other("adamw", {{"weight-decay", 0.2}}); }
TEST_F(GoldenAdamControls, OtherL2) { expect_other("adam", {{"weight-decay", 0.2}}); }
TEST_F(GoldenAdamControls, DecayElsewhere) { expect_other("adam", {{"optimizer", "adamw"}}); }

}  // namespace
}  // namespace ladder::test
