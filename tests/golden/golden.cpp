#include "tests/golden/golden.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include <fmt/format.h>

namespace ladder::test {
namespace {

constexpr int64_t kGoldenSteps = 20;

std::string content(const std::string& name) {
  const std::string path = LADDER_GOLDEN "/" + name;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

nlohmann::json read_golden(const std::string& name) {
  return nlohmann::json::parse(content(name + ".json"));
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

}  // namespace

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

Golden::Golden() { write("text.txt", content("text.txt")); }

Curve Golden::curve(std::string_view chapter, const nlohmann::json& flags) const {
  Curve curve;
  for (const TraceStep& step : trace(chapter, command_line(flags), {0, kGoldenSteps}).steps) {
    curve.loss.push_back(value_of(step.loss));
    curve.grad_norm.push_back(value_of(step.grad_norm));
  }
  return curve;
}

void Golden::expect_golden(const std::string& name, std::string_view backend) const {
  const auto golden = read_golden(name);
  auto flags = golden.at("flags");
  flags["backend"] = backend;
  const Curve got = curve(golden.at("chapter").get<std::string>(), flags);
  const double loss = deviation(got.loss, golden.at("loss"));
  const double grad_norm = deviation(got.grad_norm, golden.at("grad_norm"));
  fmt::print("{} on {}: loss deviates by {:.1e}, grad_norm by {:.1e}\n", name, backend, loss,
             grad_norm);
  EXPECT_EQ(std::ssize(got.loss), kGoldenSteps);
  EXPECT_LE(loss, kGoldenTolerance);
  EXPECT_LE(grad_norm, kGoldenTolerance);
}

void Golden::expect_other(const std::string& name, const nlohmann::json& other) const {
  const auto golden = read_golden(name);
  auto flags = golden.at("flags");
  flags.update(other);
  const Curve got = curve(golden.at("chapter").get<std::string>(), flags);
  const double strays = std::max(deviation(got.loss, golden.at("loss")),
                                 deviation(got.grad_norm, golden.at("grad_norm")));
  fmt::print("{} with {}: deviates by {:.1e}\n", name, other.dump(), strays);
  EXPECT_GT(strays, 10 * kGoldenTolerance);
  EXPECT_TRUE(std::isfinite(strays));
}

}  // namespace ladder::test
