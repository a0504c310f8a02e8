// The gradient noise scale of whole runs: in the report, after a resume, on ranks, and where a step
// is skipped.
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class NoiseRun : public Programs {
 protected:
  nlohmann::json noise(const std::string& flags) const {
    return report("15_batch_size",
                  "--layers 2 --channels 32 --heads 2 --batch 16 --micro-batch 2 --noise-scale "
                  "--optimizer sgd --momentum 0.9 --lr 0.05 " +
                      flags)
        .at("extra")
        .at("noise_scale");
  }
};

TEST_F(NoiseRun, IsInTheReport) {
  const auto got = noise("--steps 20");
  EXPECT_GT(got.at("noise"), 0);
  EXPECT_GT(got.at("signal"), 0);
  EXPECT_DOUBLE_EQ(got.at("sequences"),
                   got.at("noise").get<double>() / got.at("signal").get<double>());
  EXPECT_FALSE(report("15_batch_size", "--micro-batch 2").at("extra").contains("noise_scale"));
}

TEST_F(NoiseRun, GoesOnAfterAResume) {
  const auto whole = noise("--steps 8");
  noise("--steps 4 --save half");
  EXPECT_EQ(noise("--steps 8 --load half"), whole);
}

// Ranks give the small batch, as micro-batches do; when gradients are reduced is no matter.
TEST_F(NoiseRun, AnyRanksAndAnyWayToReduceGiveTheSame) {
  const auto one = noise("--steps 4");
  for (const std::string ddp : {"naive", "bucketed", "overlapped", "overlapped --bucket-mb 0"}) {
    EXPECT_EQ(noise("--steps 4 --ranks 2 --ddp " + ddp), one) << ddp;
    EXPECT_EQ(noise("--steps 4 --ranks 4 --ddp " + ddp), one) << ddp;
    // Each rank has one micro-batch and all are measured, not every other one.
    const auto whole = noise("--steps 4 --ranks 8 --ddp " + ddp);
    EXPECT_NE(whole, one) << ddp;
    EXPECT_GT(whole.at("noise"), 0) << ddp;
  }
}

TEST_F(NoiseRun, AStepThatOverflowsDoesNotCount) {
  const auto got = noise("--precision fp16 --loss-scale 16777216 --steps 30");
  EXPECT_GT(got.at("noise"), 0);  // no NaN of a first step that was skipped
}

}  // namespace
}  // namespace ladder::test
