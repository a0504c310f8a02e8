// Chapters 01, 02 and 21 against PyTorch: loss and gradient norm of 20 steps.
#include "tests/golden/golden.h"

#include <cmath>
#include <ostream>

namespace ladder::test {
namespace {

class GoldenRuns : public Golden, public ::testing::WithParamInterface<GoldenCase> {};
INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenRuns,
                         golden_cases({"sgd", "momentum", "nesterov", "adam", "adamw", "adamw_odd",
                                       "adamw_llama", "adamw_tied", "adamw_moe"}),
                         golden_name);

TEST_P(GoldenRuns, Says) {
  const auto [name, backend] = GetParam();
  expect_golden(name, backend);
}

/// A flag that is another than that of the golden run.
struct Other {
  std::string what, name;
  nlohmann::json flag;
};
void PrintTo(const Other& other, std::ostream* out) { *out << other.flag; }

const Other kOthers[] = {{"Rate", "sgd", {{"lr", 0.1001}}},
                         {"Momentum", "momentum", {{"momentum", 0.901}}},
                         {"NoNesterov", "nesterov", {{"nesterov", false}}},
                         {"Seed", "nesterov", {{"seed", 1}}},
                         {"Rate", "adamw", {{"lr", 2.001e-3}}},
                         {"Beta1", "adamw", {{"beta1", 0.901}}},
                         {"Beta2", "adamw_odd", {{"beta2", 0.98}}},
                         {"Head", "adamw_tied", {{"tied-head", false}}},
                         {"Eps", "adamw", {{"eps", 2e-6}}},
                         {"Decay", "adamw", {{"weight-decay", 0.2}}},
                         {"L2", "adam", {{"weight-decay", 0.2}}},
                         {"DecayElsewhere", "adam", {{"optimizer", "adamw"}}},
                         {"Loss", "adamw_moe", {{"balance-loss", 0.4}}},
                         {"Z", "adamw_moe", {{"z-loss", 0.09}}},
                         {"Bias", "adamw_moe", {{"bias-rate", 0.005}}},
                         {"Router", "adamw_moe", {{"router", "sigmoid"}}},
                         {"Weights", "adamw_moe", {{"no-renormalize", true}}}};

class GoldenControls : public Golden, public ::testing::WithParamInterface<Other> {};
INSTANTIATE_TEST_SUITE_P(Other, GoldenControls, ::testing::ValuesIn(kOthers),
                         [](const auto& test) { return test.param.what + "_" + test.param.name; });

TEST_P(GoldenControls, Differs) { expect_other(GetParam().name, GetParam().flag); }

TEST(GoldenDeviation, InfiniteWhereNothingCanBeCompared) {
  const double nan = std::nan("");
  EXPECT_EQ(deviation({2, 3}, {2, 2}), 0.5);
  EXPECT_TRUE(std::isinf(deviation({1, nan}, {1, 1})));
  EXPECT_TRUE(std::isinf(deviation({nan, 1}, {1, 1})));
  EXPECT_TRUE(std::isinf(deviation({1}, {1, 1})));
}

}  // namespace
}  // namespace ladder::test
