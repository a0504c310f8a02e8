// Learning, as a smoke test: 60 steps of `tiny`, shortened, on the tests' text.
#pragma once

#include <cmath>
#include <string>

#include "tests/common/same_trace.h"

namespace ladder::test {

class Learning : public SameTrace {
 protected:
  /// The loss begins at about ln 256 = 5.5, as that of a model that knows nothing does, and ends
  /// below 2.2 nats on held-out text: who knows the letters' frequencies and no more has 2.8. Give
  /// a learning rate at which any seed gets below 1.9. At a higher one the last bits of a kernel
  /// decide on which side of the bar a run ends.
  void expect_learns(std::string_view chapter, const std::string& flags) const {
    const std::string small = " --model tiny --seq-len 32 --batch 8 --report report.json";
    const Trace run = trace(chapter, flags + small, {0, 60});
    ASSERT_TRUE(is_whole(run)) << flags;
    const double first = std::strtod(run.steps.front().loss.c_str(), nullptr);
    EXPECT_NEAR(first, std::log(256), 0.2) << flags;
    const double last = nlohmann::json::parse(read("report.json")).at("val_loss");
    EXPECT_LT(last, 2.2) << flags;
    EXPECT_GT(last, 0.1) << flags;
  }
};

}  // namespace ladder::test
