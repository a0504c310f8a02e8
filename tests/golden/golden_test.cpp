// Chapters 01, 02, 21, 26, 32 and 34 against PyTorch in double: loss and gradient norm of 20 steps
// are what scripts/golden.py found with the same flags.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

/// How far a program in FP32 may stray from PyTorch in double, relative, in any step of any run.
/// PyTorch in FP32 strays up to 3e-6 itself; GELU by erf instead of tanh would already show.
constexpr double kGoldenTolerance = 1e-5;
constexpr int64_t kGoldenSteps = 20;

nlohmann::json read_golden(const std::string& name) {
  return nlohmann::json::parse(read_file(LADDER_GOLDEN "/" + name + ".json"));
}

/// {"lr": 0.1, "nesterov": true} -> "--lr 0.1 --nesterov "
std::string command_line(const nlohmann::json& flags) {
  std::string line;
  for (const auto& [flag, value] : flags.items()) {
    if (value == false) continue;
    line += "--" + flag + " ";
    if (value.is_string())
      line += value.get<std::string>() + " ";
    else if (!value.is_boolean())
      line += value.dump() + " ";
  }
  return line;
}

double value_of(const std::string& hex) { return std::strtod(hex.c_str(), nullptr); }

/// Loss and gradient norm of each step.
struct Curve {
  std::vector<double> loss, grad_norm;
};

/// The largest relative difference of two series; infinite if their lengths differ or if anything
/// is NaN.
double deviation(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double here = std::abs(got[i] / want[i] - 1);
    if (std::isnan(here)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, here);
  }
  return worst;
}

class Golden : public SameTrace {
 protected:
  Golden() { write("text.txt", read_file(LADDER_GOLDEN "/text.txt")); }

  /// Deviations of loss and norm from tests/golden/NAME.json, with `other` in place of some of its
  /// flags.
  std::pair<double, double> deviations(const std::string& name, const nlohmann::json& other) const {
    const auto golden = read_golden(name);
    auto flags = golden.at("flags");
    flags.update(other);
    Curve got;
    for (const TraceStep& step :
         trace(golden.at("chapter").get<std::string>(), command_line(flags), {0, kGoldenSteps})
             .steps) {
      got.loss.push_back(value_of(step.loss));
      got.grad_norm.push_back(value_of(step.grad_norm));
    }
    EXPECT_EQ(std::ssize(got.loss), kGoldenSteps);
    const std::pair all{deviation(got.loss, golden.at("loss")),
                        deviation(got.grad_norm, golden.at("grad_norm"))};
    fmt::print("{} with {}: loss deviates by {:.1e}, grad_norm by {:.1e}\n", name, other.dump(),
               all.first, all.second);
    return all;
  }
};

/// Each of the names on each table.
using GoldenCase = std::tuple<std::string, std::string>;

class GoldenRuns : public Golden, public ::testing::WithParamInterface<GoldenCase> {};
INSTANTIATE_TEST_SUITE_P(
    PyTorch, GoldenRuns,
    ::testing::Combine(::testing::Values("sgd", "momentum", "nesterov", "adam", "adamw",
                                         "adamw_odd", "adamw_llama", "adamw_tied", "adamw_moe",
                                         "packed", "packed_llama", "scaled", "scaled_llama", "muon",
                                         "muon_llama"),
                       ::testing::Values("cpu", "ref")),
    [](const auto& test) { return std::get<0>(test.param) + "_" + std::get<1>(test.param); });

TEST_P(GoldenRuns, Says) {
  const auto& [name, backend] = GetParam();
  const auto [loss, grad_norm] = deviations(name, {{"backend", backend}});
  EXPECT_LE(loss, kGoldenTolerance);
  EXPECT_LE(grad_norm, kGoldenTolerance);
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
                         {"Width", "scaled", {{"mup", "32,1"}}},
                         {"Depth", "scaled", {{"mup", "16,2"}}},
                         {"NoBase", "scaled_llama", {{"mup", "128,4"}}},
                         {"Rate", "muon", {{"muon-lr", 5.01e-3}}},
                         {"Scale", "muon_llama", {{"adjust-lr", "spectral_unclamped"}}},
                         {"Bf16", "muon", {{"newton-schulz", "bf16"}}},
                         {"Loss", "adamw_moe", {{"balance-loss", 0.4}}},
                         {"Z", "adamw_moe", {{"z-loss", 0.09}}},
                         {"Bias", "adamw_moe", {{"bias-rate", 0.005}}},
                         {"Router", "adamw_moe", {{"router", "sigmoid"}}},
                         {"Weights", "adamw_moe", {{"no-renormalize", true}}},
                         {"Documents", "packed", {{"end-of-text", 32}}}};

class GoldenControls : public Golden, public ::testing::WithParamInterface<Other> {};
INSTANTIATE_TEST_SUITE_P(Other, GoldenControls, ::testing::ValuesIn(kOthers),
                         [](const auto& test) { return test.param.what + "_" + test.param.name; });

// The curve is told clearly from rounding, and is still finite, so that it is the flag which shows.
TEST_P(GoldenControls, Differs) {
  const auto [loss, grad_norm] = deviations(GetParam().name, GetParam().flag);
  EXPECT_GT(std::max(loss, grad_norm), 10 * kGoldenTolerance);
  EXPECT_TRUE(std::isfinite(loss) && std::isfinite(grad_norm));
}

TEST(GoldenDeviation, InfiniteWhereNothingCanBeCompared) {
  const double nan = std::nan("");
  EXPECT_EQ(deviation({2, 3}, {2, 2}), 0.5);
  EXPECT_TRUE(std::isinf(deviation({1, nan}, {1, 1})));
  EXPECT_TRUE(std::isinf(deviation({nan, 1}, {1, 1})));
  EXPECT_TRUE(std::isinf(deviation({1}, {1, 1})));
}

}  // namespace
}  // namespace ladder::test
