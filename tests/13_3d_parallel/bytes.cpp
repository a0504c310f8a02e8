// 13_3d_parallel: which bytes on the wire are predicted, and of which step. All that is counted:
// tests/golden/bytes.json.
#include <string>

#include <fmt/format.h>

#include "tests/common/memory.h"

namespace ladder::test {
namespace {

/// Sizes of a mesh, and flags.
struct Cube {
  int64_t tp, dp, pp;
  int64_t ranks() const { return tp * dp * pp; }
  std::string flags() const { return fmt::format("--tp {} --dp {} --pp {} ", tp, dp, pp); }
};

class MeshBytes : public MemoryRuns {
 protected:
  nlohmann::json run(const Cube& mesh, const std::string& flags) const {
    return report("13_3d_parallel", mesh.flags() + "--batch 16 --micro-batch 2 --steps 2 " + flags);
  }
};

// What is reported is the last step: one that overflows and ends before updated weights are
// gathered; or there was none.
TEST_F(MeshBytes, AsPredictedOfTheLastStep) {
  const Cube mesh{2, 2, 2};
  must_end_with(3);
  const auto overflow = run(mesh, "--precision fp16 --loss-scale 16777216")["extra"];
  must_end_with(0);
  EXPECT_EQ(overflow["loss_scale"]["skipped"], 2);
  run(mesh, "--save saved");
  const auto none = run(mesh, "--load saved")["extra"];
  EXPECT_FALSE(none.contains("pipeline"));
  for (int64_t r = 0; r < mesh.ranks(); ++r)
    for (const char* axis : {"tp", "dp", "pp"}) {
      const auto of = [&](const nlohmann::json& extra) { return extra["traffic"][r][axis]; };
      EXPECT_EQ(of(none)["predicted"], 0) << r << axis;
      EXPECT_EQ(of(none)["measured"], 0) << r << axis;
      const bool skipped = axis == std::string("dp");
      EXPECT_EQ(of(overflow)["predicted"], skipped ? nlohmann::json() : of(overflow)["measured"])
          << r << axis;
    }
}

}  // namespace
}  // namespace ladder::test
