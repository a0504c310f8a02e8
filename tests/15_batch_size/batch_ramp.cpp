// The batch-size ramp: how many sequences and micro-batches each step has. Learning rates under a
// ramp: warmup is counted in tokens, of which steps have more and more.
#include "chapters/15_batch_size/batch_ramp.h"

#include "chapters/03_schedules/schedule.h"
#include "tests/common/run_files.h"

namespace ladder::test {
namespace {

BatchRamp ramp(std::vector<std::string> stages, int64_t batch = 16) {
  return {{.stages = std::move(stages)}, batch};
}

TEST(BatchRamp, WithoutStagesIsTheFullBatch) {
  const BatchRamp none = ramp({});
  for (const int64_t step : {0, 1, 1000}) {
    EXPECT_EQ(none.batch(step), 16);
    EXPECT_EQ(none.sequences_before(step), 16 * step);
  }
  EXPECT_EQ(none.batches(), std::vector<int64_t>{16});
}

TEST(BatchRamp, StagesEndBeforeTheirStep) {
  const BatchRamp r = ramp({"4:100", "8:300"});
  for (const auto& [step, batch] :
       {std::pair{0, 4}, {99, 4}, {100, 8}, {299, 8}, {300, 16}, {100000, 16}})
    EXPECT_EQ(r.batch(step), batch) << step;
  EXPECT_EQ(r.batches(), (std::vector<int64_t>{4, 8, 16}));
}

TEST(BatchRamp, MayGoDownAndReachTheFullBatch) {
  const BatchRamp r = ramp({"16:2", "1:3"});
  EXPECT_EQ(r.batch(1), 16);
  EXPECT_EQ(r.batch(2), 1);
  EXPECT_EQ(r.batch(3), 16);
}

TEST(BatchRamp, SequencesBeforeAddUp) {
  for (const auto& stages : {std::vector<std::string>{}, {"4:3"}, {"1:1", "5:4", "2:9"}}) {
    const BatchRamp r = ramp(stages);
    int64_t sum = 0;
    for (int64_t step = 0; step < 20; ++step) {
      EXPECT_EQ(r.sequences_before(step), sum) << step;
      sum += r.batch(step);
    }
  }
}

TEST(BatchRamp, MostMicroSteps) {
  const auto most = [](int64_t ranks, int64_t micro, std::vector<std::string> stages) {
    return most_micro_steps(ramp(std::move(stages)), {}, ranks, {.micro_batch = micro});
  };
  EXPECT_EQ(most(1, 0, {"4:1"}), 1);
  EXPECT_EQ(most(1, 4, {"4:1", "2:2"}), 4);
  EXPECT_EQ(most(1, 4, {"2:1"}), 4);
  EXPECT_EQ(most(4, 1, {"8:1"}), 4);
  EXPECT_USER_ERROR(most(1, 2, {"5:1"}), "a batch of 5; legal are 1, 5");
  EXPECT_USER_ERROR(most(2, 0, {"6:1"}), "a batch of 6 does not suit 2 ranks");
}

constexpr double kPeak = 3e-3;
constexpr int64_t kTotal = 100, kBatch = 8, kSeqLen = 16;

Schedule ramped(const ScheduleOptions& options, const std::vector<std::string>& stages) {
  return {options, kPeak, kTotal, BatchRamp({.stages = stages}, kBatch).tokens_before(kSeqLen)};
}

/// A share of the way from the peak down to min_lr 0.1.
float down(double share) { return static_cast<float>(kPeak + (0.1 * kPeak - kPeak) * share); }
float up(double share) { return static_cast<float>(kPeak * share); }

TEST(Schedule, WarmupByTokensUnderARamp) {
  // Steps of 2, 2, 4, 8, 8, ... sequences: 32, 64, 128, 256, 384, 512, 640 tokens so far.
  const Schedule s = ramped({.kind = ScheduleKind::Linear, .warmup_tokens = 600}, {"2:2", "4:3"});
  EXPECT_EQ(s.lr(0), up(32 / 600.0));
  EXPECT_EQ(s.lr(1), up(64 / 600.0));
  EXPECT_EQ(s.lr(2), up(128 / 600.0));
  EXPECT_EQ(s.lr(5), up(512 / 600.0));
  EXPECT_EQ(s.lr(6), up(1));
  EXPECT_EQ(s.lr(7 + 31), down(1 / 3.0));
  EXPECT_EQ(s.lr(100), down(1));
}

TEST(Schedule, WithoutStagesARampIsAConstantBatch) {
  for (const ScheduleOptions& options :
       {ScheduleOptions{.kind = ScheduleKind::Cosine, .warmup_tokens = 1000},
        {.kind = ScheduleKind::Wsd, .warmup = 7}}) {
    const Schedule ramp = ramped(options, {}), plain(options, kPeak, kTotal, kBatch * kSeqLen);
    for (int64_t step = 0; step < 2 * kTotal; ++step) EXPECT_EQ(ramp.lr(step), plain.lr(step));
  }
}

}  // namespace
}  // namespace ladder::test
