// 13_3d_parallel: which bytes on the wire are predicted, and of which step. All that is counted:
// tests/golden/bytes.json.
#include <map>
#include <string>
#include <tuple>
#include <vector>

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

  /// Bytes that each rank has sent in the whole run, by operation.
  static std::vector<std::map<std::string, int64_t>> on_the_wire(const nlohmann::json& report) {
    std::vector<std::map<std::string, int64_t>> ranks;
    for (const auto& of_rank : report.at("comm")) {
      ranks.emplace_back();
      for (const auto& [operation, count] : of_rank.items())
        if (operation != "rank" && count.at("wire_bytes") != 0)
          ranks.back()[operation] = count.at("wire_bytes");
    }
    return ranks;
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

// All that travels counts, also where no axis predicts it: targets, losses, sums of a softmax,
// what is validated.
TEST_F(MeshBytes, OneAxisSendsWhatItsChapterSends) {
  for (const auto& [chapter, theirs, ours] : {std::tuple{"08_zero1", "--ranks 2", "--dp 2"},
                                              {"11_tensor_parallel", "--tp 2", "--tp 2"},
                                              {"12_pipeline_parallel", "--pp 2", "--pp 2"}}) {
    const std::string flags = "--layers 2 --batch 4 --micro-batch 2 --steps 1 --eval-every 1 ";
    EXPECT_EQ(on_the_wire(report("13_3d_parallel", flags + ours)),
              on_the_wire(report(chapter, flags + theirs)))
        << chapter;
  }
}

// What is asked of a rank that sends more than others is not told of all.
TEST_F(MeshBytes, OfATreeIsNotPredicted) {
  const auto got = run({1, 2, 2}, "--reduction tree");
  EXPECT_TRUE(got["extra"]["traffic"][0]["dp"]["predicted"].is_null());
  EXPECT_TRUE(got["extra"]["traffic"][0]["pp"]["predicted"].is_number());
}

}  // namespace
}  // namespace ladder::test
