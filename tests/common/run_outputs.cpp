// What a run writes and prints: a report, a line of --trace, and --timeline.
#include <cmath>
#include <cstdlib>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/run/report.h"
#include "common/run/timeline.h"
#include "tests/common/comm/late_device.h"

namespace ladder {
namespace {

using nlohmann::json;

// The first number is that of docs/results/nvidia_h200.md.
TEST(Report, HasTheDeviceAndItsShareOfThePeak) {
  RunPlan plan{};
  plan.gpt = preset("gpt2-124m");
  RunResult result{};
  result.tokens_per_second = 32 * 1024 / 0.0763;
  result.device = "NVIDIA H200";
  result.clock_mhz = 1980;
  const json report = report_json(plan, result);
  EXPECT_EQ(report["device"], "NVIDIA H200");
  EXPECT_EQ(report["clock_mhz"], 1980);
  EXPECT_NEAR(report["mfu"], 0.371, 0.0005);
  EXPECT_NE(result_text(plan, result)
                .find("\ndevice             NVIDIA H200, 1980 MHz\n"
                      "MFU                         37.1% of 989 TFLOP/s\n"
                      "peak bytes"),
            std::string::npos)
      << result_text(plan, result);

  plan.layout.mesh[Axis::Data] = 2;
  plan.layout.comm = "thread";
  EXPECT_NEAR(mfu(plan, result), 0.371, 0.0005) << "threads share a device";
  plan.layout.comm = "nccl";
  EXPECT_NEAR(mfu(plan, result), 0.371 / 2, 0.0005) << "processes do not";
  result.device = "stand-in";
  EXPECT_TRUE(report_json(plan, result)["mfu"].is_null());
}

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

TEST(TraceLine, HasWhatAChapterAdds) {
  const StepRecord r{
      .step = 0, .loss = 1, .grad_norm = 1, .lr = 1, .tokens = 1, .others = {{"kl", 0}, {"b", 2}}};
  EXPECT_EQ(trace_line(r, 0), R"({"step":0,"loss":"0x1p+0","grad_norm":"0x1p+0","lr":"0x1p+0",)"
                              R"("b":"0x1p+1","kl":"0x0p+0","param_hash":"0000000000000000",)"
                              R"("decimal":{"loss":1,"grad_norm":1,"lr":1,"b":2,"kl":0}})"
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

TEST(Span, IsNotChargedWithWhatWasQueuedBefore) {
  test::LateDevice device;
  std::vector<Event> events;
  Ctx ctx;
  ctx.device = &device;
  ctx.events = &events;
  int64_t done = 0;
  device.queue([&] { done = now_ns(); });
  { const Span span(ctx, "work"); }
  ASSERT_EQ(events.size(), 1u);
  EXPECT_GE(events[0].begin_ns, done);
  EXPECT_GT(done, 0);
}

}  // namespace
}  // namespace ladder
