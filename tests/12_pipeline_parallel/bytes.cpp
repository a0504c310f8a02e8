// 12_pipeline_parallel: activations of what is in flight, written out. All else that is counted:
// tests/golden/bytes.json.
#include <fmt/format.h>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class PipelineBytes : public MemoryRuns {
 protected:
  // nano: 8 micro-batches of 2 sequences.
  static constexpr int64_t L = 8, C = kChannels, T = 16, Vp = 256, NH = 8, b = 2, m = 8, B = b * m;

  nlohmann::json run(const std::string& flags) const {
    return report("12_pipeline_parallel", "--batch 16 --micro-batch 2 --steps 2 " + flags);
  }
  nlohmann::json run(int64_t pp, const std::string& schedule) const {
    return run(fmt::format("--pp {} --pipeline {}", pp, schedule));
  }
  /// Bytes of activations of a stage with `n` micro-batches of its parts, of Lp layers, in flight.
  static int64_t activations(bool last, int64_t Lp, int64_t n) {
    // What each keeps: of a block its input and 15 C inside; the last norm's input and output.
    const int64_t blocks = Lp * (16 * C + NH + 4), head = last ? 2 * C + 2 : 0;
    // All share an output that is only sent on, or logits.
    const int64_t shared = last ? Vp : C;
    const int64_t batch = 8 * B * T + 4 * B;  // tokens, targets, losses
    return 4 * b * T * (n * (blocks + head) + shared) + batch;
  }
};

TEST_F(PipelineBytes, ActivationsOfWhatIsInFlight) {
  plan_only();
  const int64_t pp = 4;
  const auto gpipe = run(pp, "gpipe"), one = run(pp, "1f1b"), zb = run(pp, "zb-h1"),
             inter = run("--pp 2 --pipeline interleaved");
  for (int64_t s = 0; s < pp; ++s) {
    const bool last = s + 1 == pp;
    EXPECT_EQ(predicted(gpipe, Mem::Activation, s), activations(last, L / pp, m)) << s;
    EXPECT_EQ(predicted(one, Mem::Activation, s), activations(last, L / pp, pp - s)) << s;
    EXPECT_EQ(predicted(zb, Mem::Activation, s), activations(last, L / pp, pp)) << s;
  }
  // Two stages with two parts of two layers: first 2 parts ahead, 2 for the stage behind, and one.
  EXPECT_EQ(predicted(inter, Mem::Activation, 0), activations(false, L / 4, 2 + 2 + 1));
  EXPECT_EQ(predicted(inter, Mem::Activation, 1), activations(true, L / 4, 2 + 1));
}

TEST_F(PipelineBytes, ZbH1ComputesTwiceAgain) {
  const auto twice = [&](const std::string& schedule) {
    return run("--pp 2 --recompute full --pipeline " +
               schedule)["extra"]["recompute"]["flops_twice"]["measured"]
        .get<int64_t>();
  };
  EXPECT_GT(twice("1f1b"), 0);
  EXPECT_EQ(twice("gpipe"), twice("1f1b"));
  EXPECT_EQ(twice("zb-h1"), 2 * twice("1f1b"));
}

TEST_F(PipelineBytes, TheReportHasABubble) {
  const auto got = run("--pp 2");
  const auto& pipeline = got["extra"]["pipeline"];
  EXPECT_EQ(pipeline["name"], "1f1b");
  EXPECT_EQ(pipeline["micro_batches"], m);
  EXPECT_EQ(pipeline["timeline"].size(), 2U);
  EXPECT_EQ(pipeline["in_flight"].size(), 2U);
  EXPECT_EQ(pipeline["timeline"][0].size(), 2U * m);
  for (const char* which : {"theory", "measured"}) {
    EXPECT_GT(pipeline["bubble"][which], 0.0) << which;
    EXPECT_LT(pipeline["bubble"][which], 0.5) << which;
  }
}

}  // namespace
}  // namespace ladder::test
