// 12_pipeline_parallel: bytes in memory and on the wire, written out.
#include <vector>

#include <fmt/format.h>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class PipelineBytes : public MemoryRuns {
 protected:
  // nano: 8 micro-batches of 2 sequences.
  static constexpr int64_t L = 8, C = kChannels, T = 16, Vp = 256, NH = 8, b = 2, m = 8, B = b * m;
  static constexpr int64_t kStream = 4 * b * T * C;  ///< bytes of what stages send each other

  nlohmann::json run(const std::string& flags) const {
    return report("12_pipeline_parallel", "--batch 16 --micro-batch 2 --steps 2 " + flags);
  }
  nlohmann::json run(int64_t pp, const std::string& schedule) const {
    return run(fmt::format("--pp {} --pipeline {}", pp, schedule));
  }
  /// Elements of the parameters of a stage.
  static int64_t parameters(int64_t pp, int64_t s) {
    return L / pp * (12 * C * C + 13 * C) + (s == 0 ? (Vp + T) * C : 0) +
           (s + 1 == pp ? 2 * C + Vp * C : 0);
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

TEST_F(PipelineBytes, AStageHasItsLayers) {
  plan_only();
  for (const int64_t pp : {1, 2, 4, 8}) {
    const auto got = run(pp, "1f1b");
    for (int64_t s = 0; s < pp; ++s) {
      EXPECT_EQ(predicted(got, Mem::Param, s), 4 * parameters(pp, s)) << pp << " " << s;
      EXPECT_EQ(predicted(got, Mem::Grad, s), 4 * parameters(pp, s)) << pp << " " << s;
      EXPECT_EQ(predicted(got, Mem::Optim, s), 8 * parameters(pp, s)) << pp << " " << s;
      // Two messages on their way, in either direction.
      EXPECT_EQ(predicted(got, Mem::Comm, s), pp == 1 ? 0 : 4 * kStream) << pp << " " << s;
    }
  }
}

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

// On stage s of zb-h1 the weight gradients of s + 1 micro-batches wait, and for each what they
// read: of a block 10 C beside its stream, of which there is one more than blocks. Of 1f1b one
// block, with a stream at either end, serves all.
TEST_F(PipelineBytes, WeightGradientsThatWait) {
  plan_only();
  const int64_t pp = 4, Lp = L / pp;
  const auto one = run(pp, "1f1b"), zb = run(pp, "zb-h1");
  for (int64_t s = 0; s < pp; ++s) {
    const int64_t waiting = (s + 1) * (10 * Lp + Lp + 1);
    EXPECT_EQ(predicted(zb, Mem::Workspace, s) - predicted(one, Mem::Workspace, s),
              (waiting - (10 + 2)) * kStream)
        << s;
  }
}

TEST_F(PipelineBytes, EachBoundaryTwice) {
  const auto sent = [&](const std::string& flags) {
    return run(flags)["extra"]["traffic"]["measured"].get<int64_t>();
  };
  // Stage 0, which writes the report, sends activations on; what comes back others send.
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1"})
    EXPECT_EQ(sent("--pp 2 --pipeline " + schedule), m * kStream) << schedule;
  // Its other parts are gradients' senders, too.
  EXPECT_EQ(sent("--pp 2 --pipeline interleaved"), (2 + 1) * m * kStream);
  EXPECT_EQ(sent("--pp 2 --pipeline interleaved --chunks 4"), (4 + 3) * m * kStream);
  EXPECT_EQ(sent("--pp 4 --precision bf16"), m * kStream / 2);
  EXPECT_EQ(sent("--pp 4 --recompute full"), m * kStream);
  EXPECT_EQ(sent("--pp 1"), 0);
}

// Of every stage, by what a third step adds.
TEST_F(PipelineBytes, StagesBetweenSendBothWays) {
  const auto sent = [&](const std::string& flags) {
    const auto two = run(flags), three = report("12_pipeline_parallel",
                                                "--batch 16 --micro-batch 2 --steps 3 " + flags);
    std::vector<int64_t> all;
    for (size_t s = 0; s < three["comm"].size(); ++s)
      all.push_back(three["comm"][s]["send"]["wire_bytes"].get<int64_t>() -
                    two["comm"][s]["send"]["wire_bytes"].get<int64_t>());
    return all;
  };
  constexpr int64_t once = m * kStream;
  EXPECT_EQ(sent("--pp 4"), (std::vector<int64_t>{once, 2 * once, 2 * once, once}));
  EXPECT_EQ(sent("--pp 4 --pipeline interleaved"),
            (std::vector<int64_t>{3 * once, 4 * once, 4 * once, 3 * once}));
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
