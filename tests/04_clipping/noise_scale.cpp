// The gradient noise scale on synthetic gradients whose G and S are known.
#include "chapters/04_clipping/noise_scale.h"

#include <cmath>
#include <span>
#include <vector>

#include "common/random.h"
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

constexpr int64_t kSize = 50;  // elements of a gradient
constexpr int kSteps = 600;

/// Gradients of sequences: G, whose elements are all `mean`, plus noise of variance `variance`
/// each. So |G|^2 = kSize mean^2 and S = kSize variance.
struct Source {
  double mean, variance;
  uint64_t seed = 1;

  /// Adds the gradient of sequence i of a step to `sum`.
  void add(std::span<double> sum, int64_t step, int64_t i) const {
    const Random random(seed, "step " + std::to_string(step));
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

/// Plays a run as chapter 04 does: every other micro-batch lies alone in a buffer.
NoiseScale estimate(const Source& source, int64_t small, int64_t big, int steps = kSteps) {
  NoiseScale noise;
  for (int step = 0; step < steps; ++step) {
    std::vector<double> all(kSize);
    for (int64_t k = 0; k * small < big; ++k) {
      std::vector<double> micro(kSize);
      for (int64_t i = 0; i < small; ++i) source.add(micro, step, k * small + i);
      if (k % 2 == 0) noise.add_small(norm(micro, big), small, big);
      for (int64_t d = 0; d < kSize; ++d) all[d] += micro[d];
    }
    noise.end_step(norm(all, big), small, big);
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
  NoiseScale noise;
  for (int step = 0; step < 10; ++step) {
    noise.add_small(3.0 / 4, 2, 8);  // every micro-batch has the gradient of the whole
    noise.add_small(3.0 / 4, 2, 8);
    noise.end_step(3.0, 2, 8);
  }
  EXPECT_NEAR(numbers(noise)["signal"].get<double>(), 9, 1e-12);
  EXPECT_EQ(numbers(noise)["noise"], 0);
  EXPECT_EQ(noise.value(), 0);
}

TEST(NoiseScale, PureNoiseHasNoSignal) {
  const auto got = numbers(estimate({.mean = 0, .variance = 1}, 1, 8));
  EXPECT_NEAR(got["signal"].get<double>(), 0, 0.1 * kSize / 8);
  EXPECT_NEAR(got["noise"].get<double>(), kSize, 0.1 * kSize);
}

TEST(NoiseScale, IsDeterministic) {
  const Source source{.mean = 1, .variance = 3};
  EXPECT_EQ(numbers(estimate(source, 2, 8, 30)), numbers(estimate(source, 2, 8, 30)));
  EXPECT_NE(numbers(estimate(source, 2, 8, 30)),
            numbers(estimate({.mean = 1, .variance = 3, .seed = 2}, 2, 8, 30)));
}

TEST(NoiseScale, StepsWithoutTwoBatchSizesDoNotCount) {
  NoiseScale noise;
  EXPECT_EQ(noise.value(), 0);
  noise.end_step(5, 2, 8);  // no small gradient
  noise.add_small(5, 8, 8);
  noise.end_step(5, 8, 8);  // early in a ramp: one micro-batch
  EXPECT_EQ(noise.value(), 0);
  EXPECT_TRUE(numbers(noise).is_null());
}

TEST(NoiseScale, TheFirstStepFadesAsAllOthersDo) {
  NoiseScale noise;
  for (const double norm : {4.0, 2.0, 2.0}) {
    noise.add_small(norm / 4, 2, 8);
    noise.end_step(norm, 2, 8);
  }
  const double weights = 0.98 * 0.98 + 0.98 + 1;
  EXPECT_NEAR(numbers(noise)["signal"].get<double>(), (0.98 * 0.98 * 16 + 0.98 * 4 + 4) / weights,
              1e-12);
}

TEST(NoiseScale, AStateIsAllOfIt) {
  NoiseScale whole, first, rest;
  for (int step = 0; step < 6; ++step) {
    if (step == 3) rest.set_state(first.state());
    for (NoiseScale* noise : {&whole, step < 3 ? &first : &rest}) {
      noise->add_small(1.0 + step, 2, 8);
      noise->end_step(2.0 + step, 2, 8);
    }
  }
  EXPECT_EQ(numbers(rest), numbers(whole));
}

TEST(NoiseScale, ASkippedStepLeavesNothingBehind) {
  NoiseScale with, without;
  for (NoiseScale* noise : {&with, &without}) {
    if (noise == &with) {
      with.add_small(std::nan(""), 2, 8);
      with.skip_step();
    }
    noise->add_small(2, 2, 8);
    noise->end_step(3, 2, 8);
  }
  EXPECT_EQ(numbers(with), numbers(without));
  EXPECT_TRUE(std::isfinite(with.value()));
}

class NoiseRun : public Programs {
 protected:
  nlohmann::json noise(const std::string& flags) const {
    return report("04_clipping",
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
  EXPECT_FALSE(report("04_clipping", "--micro-batch 2").at("extra").contains("noise_scale"));
}

TEST_F(NoiseRun, GoesOnAfterAResume) {
  const auto whole = noise("--steps 8");
  noise("--steps 4 --save half");
  EXPECT_EQ(noise("--steps 8 --load half"), whole);
}

TEST(NoiseScale, Refusals) {
  const NoiseScaleOptions on{.on = true}, off;
  EXPECT_USER_ERROR(on.check(8, 8), "takes a --micro-batch below --batch 8, not 8");
  on.check(4, 8);
  off.check(8, 8);
}

}  // namespace
}  // namespace ladder::test
