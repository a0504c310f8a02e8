// What a report says of the device.

#include <gtest/gtest.h>

#include "common/run/report.h"

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

}  // namespace
}  // namespace ladder
