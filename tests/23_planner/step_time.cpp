// The time of a step: its bubble is chapter 12's, its products are its operations, and more of a
// resource is never slower.
#include "chapters/23_planner/step_time.h"

#include <string>

#include <gtest/gtest.h>

#include "chapters/07_ddp/ddp.h"
#include "chapters/23_planner/device.h"
#include "chapters/23_planner/flops.h"
#include "common/model/config.h"

namespace ladder::planner {
namespace {

const Device& h100() {
  static const Device device = read_device(LADDER_DEVICES, "h100");
  return device;
}

Job job(const std::string& model = "gpt3-6.7b") {
  Job job{.gpt = preset(model), .gpus = 64, .batch = 512, .precision = {}};
  job.precision.name = "bf16";
  return job;
}

StepTime step(const Job& job, const PlanLayout& layout, const Device& device = h100()) {
  SizeTable sizes;
  return StepModel(job, device, layout, sizes).step();
}
StepTime clocked(const Job& job, const PlanLayout& layout) {
  SizeTable sizes;
  return StepModel(job, h100(), layout, sizes).clocked();
}

TEST(StepTime, ProductsAreTheOperationsOfTheModel) {
  for (const char* model : {"gpt3-6.7b", "llama3-8b"}) {
    const Job of = job(model);
    PlanLayout layout{.tp = 2, .pp = 1, .dp = 32};
    const StepTime time = step(of, layout);
    const auto [blocks, head, attention] = forward_flops(of.gpt);
    const double tokens = static_cast<double>(of.tokens()), devices = 64;
    const double rate = h100().bf16 * h100().products;
    EXPECT_NEAR(time.terms[Term::Products] / (3 * blocks * tokens / devices / rate), 1, 1e-9);
    // The head has a row for each of the padded vocabulary.
    const double pad = static_cast<double>(of.gpt.padded_vocab) / static_cast<double>(of.gpt.vocab);
    EXPECT_NEAR(time.terms[Term::Head] / (3 * pad * head * tokens / devices / rate), 1, 1e-9);
  }
}

// A causal kernel does half of the pairs forward, and five products for two backward.
TEST(StepTime, AttentionIsCausal) {
  const Job of = job();
  const StepTime time = step(of, {.tp = 1, .pp = 1, .dp = 64});
  const double whole = forward_flops(of.gpt).attention * static_cast<double>(of.tokens()) / 64;
  const double rate = h100().bf16 * h100().attention;
  EXPECT_NEAR(time.terms[Term::Attention] / (3.5 * whole / 2 / rate), 1, 0.01);
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

TEST(StepTime, OneStageHasNoBubble) {
  EXPECT_EQ(step(job(), {.tp = 8, .pp = 1, .dp = 8}).terms[Term::Bubble], 0);
  EXPECT_GT(step(job(), {.tp = 8, .pp = 2, .dp = 4}).terms[Term::Bubble], 0);
}

TEST(StepTime, MoreOfAResourceIsNeverSlower) {
  const PlanLayout layout{.tp = 8, .pp = 4, .dp = 2, .zero = 1, .recompute = "full"};
  const double before = step(job(), layout).seconds();
  for (double Device::*number : {&Device::bf16, &Device::memory_rate, &Device::node_rate,
                                 &Device::net_rate, &Device::products, &Device::attention}) {
    Device better = h100();
    better.*number *= 1.25;
    EXPECT_LT(step(job(), layout, better).seconds(), before);
  }
}

TEST(StepTime, RecomputationTakesAForwardMore) {
  const PlanLayout none{.tp = 1, .pp = 2, .dp = 32},
      full{.tp = 1, .pp = 2, .dp = 32, .recompute = "full"};
  const StepTime a = step(job(), none), b = step(job(), full);
  const double forward = a.terms[Term::Products] / 3;
  EXPECT_EQ(a.terms[Term::Again], 0);
  EXPECT_GT(b.terms[Term::Again], forward);
  EXPECT_LT(b.terms[Term::Again], 1.5 * forward);
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
