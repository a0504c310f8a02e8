// The time of a step: its bubble and its traffic are those of the chapters.
#include "chapters/23_planner/step_time.h"

#include <string>

#include <gtest/gtest.h>

#include "chapters/07_ddp/ddp.h"
#include "chapters/23_planner/device.h"
#include "common/model/config.h"

namespace ladder::planner {
namespace {

const Device& h100() {
  static const Device device = read_device(LADDER_DEVICES, "h100");
  return device;
}

Job job(const std::string& model = "gpt3-6.7b") {
  return {.gpt = preset(model), .gpus = 64, .batch = 512, .precision = {{.name = "bf16"}}};
}

StepTime step(const Job& job, const PlanLayout& layout, const Device& device = h100()) {
  SizeTable sizes;
  return StepModel(job, device, layout, sizes).step();
}
StepTime clocked(const Job& job, const PlanLayout& layout) {
  SizeTable sizes;
  return StepModel(job, h100(), layout, sizes).clocked();
}

// Where all stages but the ends are equal, the clock is a little faster than the formula, which
// takes all stages for the slowest; and never slower.
TEST(StepTime, TheClockAgreesWithTheFormula) {
  for (const PipelineKind kind : {PipelineKind::GPipe, PipelineKind::OneFOneB,
                                  PipelineKind::Interleaved, PipelineKind::ZbH1}) {
    const PlanLayout layout{.tp = 2,
                            .pp = 8,
                            .dp = 4,
                            .schedule = kind,
                            .chunks = kind == PipelineKind::Interleaved ? 2 : 1};
    const double formula = step(job(), layout).seconds(), clock = clocked(job(), layout).seconds();
    EXPECT_LE(clock, formula * (1 + 1e-9)) << to_string(kind);
    EXPECT_GE(clock, formula * 0.93) << to_string(kind);
  }
}

// What replicas send is the chapters' own: an all-reduce is a reduce-scatter and an all-gather.
TEST(StepTime, TrafficIsThatOfChapters07To10) {
  const Job of = job("tiny");
  for (const int64_t N : {2, 4, 8}) {
    PlanLayout layout{.dp = N};
    SizeTable sizes;
    const StageSizes& n = sizes.of(of, layout, 0);
    const ParamLayout params(of.gpt, N);
    const ParamLayout whole(of.gpt);
    EXPECT_EQ(n.reduce + n.gather, zero1_traffic(params, {}, of.precision));
    EXPECT_EQ(3 * n.reduce + n.gather, zero2_traffic(params, {}, of.precision, 3));
    EXPECT_EQ(2 * n.reduce, ddp_traffic(params.unsharded(), {}, static_cast<int>(N)));
    layout.zero = 3;
    const StageSizes& third = sizes.of(of, layout, 0);
    EXPECT_GT(third.gather_again, 0);
    EXPECT_LT(third.gather_again, n.gather);
  }
}

// Of a segment that is computed again just before its backward two blocks are in buffers still.
// What one policy gathers does not depend on which was asked for before.
TEST(StepTime, LongerSegmentsAreGatheredAgain) {
  const Job of = job("gpt3-6.7b");
  SizeTable sizes;
  const auto gathered = [&](const std::string& policy) {
    return sizes.of(of, {.dp = 64, .zero = 3, .recompute = policy}, 0).gather_again;
  };
  const int64_t none = gathered("none");
  EXPECT_EQ(gathered("full"), none);
  EXPECT_EQ(gathered("every:2"), none);
  EXPECT_GT(gathered("every:4"), none);
  EXPECT_EQ(gathered("full"), none);
}

// Chapter 10 gathers the embedding, L blocks and the head for forward. For backward it gathers L -
// 1 blocks again, each by messages of its own, which take latency once more. The last block is in a
// buffer still.
TEST(StepTime, WhatIsGatheredAgainWaitsForLatency) {
  const Job of = job("gpt3-6.7b");
  const PlanLayout layout{.dp = 64, .zero = 3};
  SizeTable sizes;
  const auto L = static_cast<double>(of.gpt.layers);
  EXPECT_EQ(sizes.of(of, layout, 0).sections_again, of.gpt.layers - 1);
  // Longer messages of which computation hides none: only what they add to the step is seen.
  Device late = h100();
  late.overlap = 0;
  const double before = step(of, layout, late).terms[Term::Data];
  late.net_latency += 1e-3;
  const double added = step(of, layout, late).terms[Term::Data] - before;
  const double hops = 6, micros = 8;  // log2 of 64 ranks; 512 sequences in all
  // Gathers of forward, gathers of backward, reduce-scatters.
  EXPECT_NEAR(added, micros * hops * 1e-3 * ((L + 2) + (L - 1) + (L + 2)), 1e-6);
}

}  // namespace
}  // namespace ladder::planner
