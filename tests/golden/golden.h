// Golden curves: what scripts/golden.py found with PyTorch in double, and what the programs say
// when they run with the same flags.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace ladder::test {

/// How far a program in FP32 may stray from PyTorch in double, in any step of any golden run.
/// PyTorch in FP32 strays up to 3e-6 itself; GELU by erf instead of tanh would already show.
constexpr double kTolerance = 1e-5;

/// One value a step.
struct Curve {
  std::vector<double> loss, grad_norm;
};

/// Largest relative difference of two series; infinite if their lengths differ or if anything
/// is NaN.
inline double deviation(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double here = std::abs(got[i] / want[i] - 1);
    if (std::isnan(here)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, here);
  }
  return worst;
}

inline double deviation(const Curve& got, const Curve& want) {
  return std::max(deviation(got.loss, want.loss), deviation(got.grad_norm, want.grad_norm));
}

/// The lines of --trace.
inline Curve read_trace(const std::string& path) {
  std::ifstream file(path);
  Curve curve;
  for (std::string line; std::getline(file, line);) {
    const auto step = nlohmann::json::parse(line);
    const auto number = [&](const char* key) {
      return std::strtod(step.at(key).get_ref<const std::string&>().c_str(), nullptr);
    };
    curve.loss.push_back(number("loss"));
    curve.grad_norm.push_back(number("grad_norm"));
  }
  return curve;
}

/// One file of tests/golden/.
class Golden {
 public:
  explicit Golden(std::string_view name) {
    std::ifstream file(fmt::format("{}/{}.json", LADDER_GOLDEN, name));
    json_ = nlohmann::json::parse(file);
  }

  Curve curve() const { return {.loss = json_.at("loss"), .grad_norm = json_.at("grad_norm")}; }

  /// The curve of the chapter's own program with the same flags, but for those in `other`. One
  /// thread: the bits do not depend on it, and many tests run side by side.
  /// @throws if the program fails
  Curve run(std::string_view backend, const nlohmann::json& other = {}) const {
    auto flags = json_.at("flags");
    flags.update(nlohmann::json{{"data", LADDER_GOLDEN "/text.txt"},
                                {"backend", backend},
                                {"threads", 1},
                                {"trace", trace_path()}});
    if (!other.is_null()) flags.update(other);
    std::string command = fmt::format("'{}' --quiet", LADDER_PROGRAM);
    for (const auto& [flag, value] : flags.items())
      command += fmt::format(" --{}='{}'", flag,
                             value.is_string() ? value.get<std::string>() : value.dump());
    if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
    const Curve curve = read_trace(trace_path());
    std::filesystem::remove(trace_path());
    return curve;
  }

 private:
  static std::string trace_path() {
    return fmt::format("{}golden-{}.jsonl", ::testing::TempDir(), getpid());
  }

  nlohmann::json json_;
};

/// The test itself: a program says what PyTorch says.
inline void expect_golden(std::string_view name, std::string_view backend) {
  const Golden golden(name);
  const Curve got = golden.run(backend), want = golden.curve();
  ASSERT_EQ(want.loss.size(), 20u);
  const double loss = deviation(got.loss, want.loss);
  const double grad_norm = deviation(got.grad_norm, want.grad_norm);
  fmt::print("{} on {}: loss deviates by {:.1e}, grad_norm by {:.1e}\n", name, backend, loss,
             grad_norm);
  EXPECT_LE(loss, kTolerance);
  EXPECT_LE(grad_norm, kTolerance);
}

/// Its negative control: a flag that is not the golden one is told clearly from rounding. Every
/// value stays finite, so it is the flag that is seen and no accident.
inline void expect_not_golden(std::string_view name, const nlohmann::json& other) {
  const Golden golden(name);
  const double strays = deviation(golden.run("cpu", other), golden.curve());
  fmt::print("{} with {}: deviates by {:.1e}\n", name, other.dump(), strays);
  EXPECT_GT(strays, 10 * kTolerance);
  EXPECT_TRUE(std::isfinite(strays));
}

/// "adamw_cpu" of the parameters ("adamw", "cpu").
inline std::string case_name(
    const ::testing::TestParamInfo<std::tuple<const char*, const char*>>& info) {
  return fmt::format("{}_{}", std::get<0>(info.param), std::get<1>(info.param));
}

}  // namespace ladder::test
