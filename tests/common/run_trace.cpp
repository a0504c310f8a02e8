// A line of --trace.

#include <cmath>
#include <cstdlib>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/run/report.h"

namespace ladder {
namespace {

using nlohmann::json;

double number(const json& text) { return std::strtod(text.get<std::string>().c_str(), nullptr); }

TEST(TraceLine, IsExact) {
  const StepRecord r{.step = 7, .loss = 0.1f, .grad_norm = 0.1, .lr = 1e-3f, .tokens = 1};
  const std::string line = trace_line(r, 0xABC);
  EXPECT_EQ(line.back(), '\n');
  const json parsed = json::parse(line);
  EXPECT_EQ(parsed.size(), 6u);
  EXPECT_EQ(parsed["step"], 7);
  EXPECT_EQ(number(parsed["loss"]), double{0.1f});
  EXPECT_EQ(number(parsed["grad_norm"]), 0.1);
  EXPECT_EQ(number(parsed["lr"]), double{1e-3f});
  EXPECT_EQ(parsed["param_hash"], "0000000000000abc");
  EXPECT_EQ(parsed["decimal"].dump(), R"({"grad_norm":0.1,"loss":0.1,"lr":0.001})");
  const StepRecord one{.step = 0, .loss = 0x1.62e43p+2f, .grad_norm = 1, .lr = 1e-9f, .tokens = 1};
  EXPECT_EQ(trace_line(one, 0),
            R"({"step":0,"loss":"0x1.62e43p+2","grad_norm":"0x1p+0","lr":"0x1.12e0bep-30",)"
            R"("param_hash":"0000000000000000",)"
            R"("decimal":{"loss":5.5451775,"grad_norm":1,"lr":1e-09}})"
            "\n");
}

TEST(TraceLine, NotANumber) {
  const StepRecord r{.step = 0,
                     .loss = -NAN,
                     .grad_norm = std::numeric_limits<double>::infinity(),
                     .lr = 0,
                     .tokens = 1};
  const json parsed = json::parse(trace_line(r, 0));
  EXPECT_EQ(parsed["loss"], "nan");
  EXPECT_EQ(parsed["grad_norm"], "inf");
  EXPECT_TRUE(parsed["decimal"]["loss"].is_null());
  EXPECT_TRUE(parsed["decimal"]["grad_norm"].is_null());
}

}  // namespace
}  // namespace ladder
