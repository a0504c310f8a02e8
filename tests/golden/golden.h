// Golden runs: what scripts/golden.py found with PyTorch in double, and whether a chapter's
// program says the same when it runs with the same flags.
#pragma once

#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/common/same_trace.h"

namespace ladder::test {

/// How far a program in FP32 may stray from PyTorch in double, relative, in any step of any run.
/// PyTorch in FP32 strays up to 3e-6 itself; GELU by erf instead of tanh would already show.
constexpr double kGoldenTolerance = 1e-5;

/// Loss and gradient norm of each step.
struct Curve {
  std::vector<double> loss, grad_norm;
};

/// Largest relative difference of two series; infinite if their lengths differ or if anything
/// is NaN.
double deviation(const std::vector<double>& got, const std::vector<double>& want);

class Golden : public SameTrace {
 protected:
  Golden();

  /// tests/golden/NAME.json on a table of kernels: every loss and norm is PyTorch's.
  void expect_golden(const std::string& name, std::string_view backend) const;

  /// The negative control: with `other` in place of some of the golden flags the curve is told
  /// clearly from rounding, and is still finite, so that it is the flag which shows.
  void expect_other(const std::string& name, const nlohmann::json& other) const;

 private:
  Curve curve(std::string_view chapter, const nlohmann::json& flags) const;
};

/// Each of the names on each table.
using GoldenCase = std::tuple<std::string, std::string>;
inline auto golden_cases(const std::vector<std::string>& names) {
  return ::testing::Combine(::testing::ValuesIn(names),
                            ::testing::Values<std::string>("cpu", "ref"));
}

/// "adamw_cpu"
inline std::string golden_name(const ::testing::TestParamInfo<GoldenCase>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param);
}

}  // namespace ladder::test
