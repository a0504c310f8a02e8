// The gradient noise scale on synthetic gradients whose G and S are known.
#include "chapters/15_batch_size/noise_scale.h"

#include <cmath>
#include <span>
#include <vector>

#include "common/comm/self_comm.h"
#include "common/random.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

constexpr int64_t kSize = 50;  // elements of a gradient
constexpr int kSteps = 600;

/// Gradients of sequences: G, whose elements are all `mean`, plus noise of variance `variance`
/// each. So |G|^2 = kSize mean^2 and S = kSize variance.
struct Source {
  double mean, variance;

  /// Adds the gradient of sequence i of a step to `sum`.
  void add(std::span<double> sum, int64_t step, int64_t i) const {
    const Random random(/*seed=*/1, "step " + std::to_string(step));
    for (int64_t d = 0; d < kSize; ++d)
      sum[d] +=
          mean + std::sqrt(variance) * random.normal_pair(static_cast<uint64_t>(i * kSize + d))[0];
  }
};

/// Norm of a buffer that sums sequences, each weighing 1 / B, as a mean over the batch does.
double norm(std::span<const double> sum, int64_t B) {
  double squares = 0;
  for (double x : sum) squares += x * x;
  return std::sqrt(squares) / static_cast<double>(B);
}

/// Plays a run as chapter 15 does: every other micro-batch lies alone in a buffer.
NoiseScale estimate(const Source& source, int64_t small, int64_t big, int steps = kSteps) {
  NoiseScale noise;
  for (int step = 0; step < steps; ++step) {
    std::vector<double> all(kSize);
    double squares = 0;
    int count = 0;
    for (int64_t k = 0; k * small < big; ++k) {
      std::vector<double> micro(kSize);
      for (int64_t i = 0; i < small; ++i) source.add(micro, step, k * small + i);
      if (k % 2 == 0) squares += std::pow(norm(micro, small), 2), ++count;
      for (int64_t d = 0; d < kSize; ++d) all[d] += micro[d];
    }
    noise.add_step(squares / count, norm(all, big), small, big);
  }
  return noise;
}

nlohmann::json numbers(const NoiseScale& noise) {
  nlohmann::json extra;
  noise.report(extra);
  return extra.at("noise_scale");
}

TEST(NoiseScale, RecoversSignalAndNoise) {
  // The average keeps about 50 steps; the spread of what it averages leaves about 3%.
  for (const auto& [mean, variance] : {std::pair{1.0, 1.0}, {1.0, 20.0}, {0.1, 0.02}})
    for (const auto& [small, big] : {std::pair{1, 8}, {2, 16}, {4, 8}}) {
      const auto got = numbers(estimate({.mean = mean, .variance = variance}, small, big));
      const double G = kSize * mean * mean, S = kSize * variance;
      EXPECT_NEAR(got["signal"].get<double>(), G, 0.1 * (G + S / big)) << small << " " << big;
      EXPECT_NEAR(got["noise"].get<double>(), S, 0.1 * S) << small << " " << big;
      EXPECT_NEAR(got["sequences"].get<double>(), S / G, 0.2 * S / G) << small << " " << big;
    }
}

TEST(NoiseScale, IsNotTheVarianceOverElements) {
  // Elements of G that differ are no noise.
  NoiseScale noise;  // every micro-batch has the gradient of the whole
  for (int step = 0; step < 10; ++step) noise.add_step(9, 3, 2, 8);
  EXPECT_NEAR(numbers(noise)["signal"].get<double>(), 9, 1e-12);
  EXPECT_EQ(numbers(noise)["noise"], 0);
  EXPECT_EQ(noise.value(), 0);
}

TEST(NoiseScale, PureNoiseHasNoSignal) {
  const auto got = numbers(estimate({.mean = 0, .variance = 1}, 1, 8));
  EXPECT_NEAR(got["signal"].get<double>(), 0, 0.1 * kSize / 8);
  EXPECT_NEAR(got["noise"].get<double>(), kSize, 0.1 * kSize);
}

TEST(NoiseScale, StepsWithoutTwoBatchSizesDoNotCount) {
  NoiseScale noise;
  EXPECT_EQ(noise.value(), 0);
  noise.add_step(25, 5, 8, 8);  // early in a ramp: one micro-batch
  EXPECT_EQ(noise.value(), 0);
  EXPECT_TRUE(numbers(noise).is_null());
}

TEST(NoiseScale, TheFirstStepFadesAsAllOthersDo) {
  NoiseScale noise;
  for (const double norm : {4.0, 2.0, 2.0}) noise.add_step(norm * norm, norm, 2, 8);
  const double weights = 0.98 * 0.98 + 0.98 + 1;
  EXPECT_NEAR(numbers(noise)["signal"].get<double>(), (0.98 * 0.98 * 16 + 0.98 * 4 + 4) / weights,
              1e-12);
}

class SmallNormsOf : public ::testing::Test {
 protected:
  /// The mean square of gradients in all of whose elements `values` stand, one a gradient.
  double mean_square(const std::vector<float>& values, float scale = 1) {
    for (const float value : values) {
      const Tensor grads = box.filled({layout.size()}, value);
      for (int64_t s = layout.sections(); s-- > 0;) norms.add(box.ctx(), layout, grads, s);
    }
    SelfComm self;
    return norms.mean_square(box.ctx(), self, 4, scale);
  }
  double live() const {
    int64_t sum = 0;
    for (const ParamSpec& spec : layout.specs()) sum += spec.live();
    return static_cast<double>(sum);
  }

  Sandbox box{ref_kernels()};
  const ParamLayout layout{{.name = "test",
                            .layers = 2,
                            .heads = 1,
                            .channels = 3,
                            .seq_len = 1,
                            .positions = 1,
                            .vocab = 2,
                            .padded_vocab = 5}};
  Arena arena;
  SmallNorms norms{arena, {.on = true}};
};

TEST_F(SmallNormsOf, IsTheMeanOverGradientsWithoutPadding) {
  norms.begin_step();
  EXPECT_DOUBLE_EQ(mean_square({1, 3}), 16 * live() * 5);
  norms.begin_step();
  EXPECT_DOUBLE_EQ(mean_square({8}, 4), 64 * live());
}

TEST_F(SmallNormsOf, ASkippedStepLeavesNothingBehind) {
  norms.begin_step();
  EXPECT_TRUE(std::isnan(mean_square({std::nanf("")})));
  norms.begin_step();
  EXPECT_DOUBLE_EQ(mean_square({1}), 16 * live());
}

TEST_F(SmallNormsOf, OffTakesNothing) {
  Arena none;
  SmallNorms off(none, {});
  off.begin_step();
  off.add(box.ctx(), layout, {}, 0);
  EXPECT_EQ(none.current().total(), 0);
  EXPECT_EQ(arena.current()[Mem::Workspace], SmallNorms::bytes({.on = true}));
}

}  // namespace
}  // namespace ladder::test
