// The usual accounting: bytes a parameter by each convention, the tables that people quote, and
// that its parts are those of the chapters.
#include "chapters/23_planner/usual_memory.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "chapters/12_pipeline_parallel/stage_layout.h"
#include "chapters/23_planner/job.h"
#include "common/model/config.h"
#include "common/run/report.h"

namespace ladder::planner {
namespace {

Job job(const std::string& model, const std::string& precision, Gradients gradients = {}) {
  return {.gpt = preset(model),
          .gpus = 1,
          .batch = 1,
          .precision = {{.name = precision}},
          .gradients = gradients};
}

/// Bytes of one parameter's weights, master, gradients and Adam's states, on one rank of
/// `replicas`.
double bytes_each(const Job& job, int zero = 0, int replicas = 1) {
  const PlanLayout layout{.dp = replicas, .zero = zero};
  SizeTable sizes;
  const MemoryBytes bytes = usual_bytes(job, layout, 0, sizes);
  const int64_t all = bytes[Mem::Param] + bytes[Mem::Master] + bytes[Mem::Grad] + bytes[Mem::Optim];
  return static_cast<double>(all) / static_cast<double>(sizes.of(job, layout, 0).all);
}

TEST(UsualBytes, AParameterByEachConvention) {
  EXPECT_EQ(bytes_each(job("nano", "fp32")), 16);
  EXPECT_EQ(bytes_each(job("nano", "bf16", Gradients::Narrow)), 16);
  EXPECT_EQ(bytes_each(job("nano", "bf16", Gradients::Fp32)), 18);
  EXPECT_EQ(bytes_each(job("nano", "bf16", Gradients::Both)), 20);
}

// 1910.02054, figure 1: 7.5 B parameters on 64 ranks, 120 / 31.4 / 16.6 / 1.9 GB.
TEST(UsualBytes, ZerosExample) {
  const Job of = job("nano", "bf16", Gradients::Narrow);
  const std::vector<double> printed = {120, 31.4, 16.6, 1.88};
  for (int zero = 0; zero <= 3; ++zero)
    EXPECT_NEAR(7.5 * bytes_each(of, zero, 64), printed[static_cast<size_t>(zero)], 0.05) << zero;
}

// 2205.05198: s b h (34 - 2) / t without dropout's masks, the attention matrix not kept: with a
// sum of exponentials for each query and head, and two numbers for each norm.
TEST(UsualBytes, ActivationsAreThoseOfThePaper) {
  Job of = job("gpt3-175b", "bf16");
  const int64_t s = of.gpt.seq_len, h = of.gpt.channels, L = of.gpt.layers, NH = of.gpt.heads;
  for (const int64_t t : {1, 2, 4, 8}) {
    const PlanLayout layout{.tp = t};
    SizeTable sizes;
    of.gpus = t;
    const int64_t blocks = L * (s * h * 32 / t + 4 * s * (NH + 4) / t);
    const int64_t ends = (4 * s * h + 8 * s) / t + 2 * s * of.gpt.padded_vocab / t;
    EXPECT_EQ(usual_bytes(of, layout, 0, sizes)[Mem::Activation], blocks + ends) << t;
  }
}

// The plan of a stage is chapter 12's, without its lists of actions.
TEST(UsualBytes, StagesArePlannedAsByChapter12) {
  Job of = job("nano", "bf16");
  of.batch = 16;
  for (const PipelineKind kind :
       {PipelineKind::GPipe, PipelineKind::OneFOneB, PipelineKind::Interleaved, PipelineKind::ZbH1})
    for (const char* policy : {"none", "selective", "full", "every:2"})
      for (int64_t s = 0; s < 4; ++s) {
        PlanLayout layout{.pp = 4, .recompute = policy, .schedule = kind};
        if (kind == PipelineKind::Interleaved) {
          layout.chunks = 2;
          if (layout.recompute == "every:2") layout.recompute = "every:1";
        }
        PipelineOptions options;
        options.kind = kind;
        const StageLayout stage(options, of.gpt, s, options.pipeline(of.gpt, 4, layout.micros(of)));
        const Recompute recompute(layout.recompute, stage.model_chunk.layers, /*at_once=*/false);
        ActivationPlan wanted = stage.plan(of.precision.plan(), recompute);
        const ActivationPlan got = activations_of(of, layout, s);
        EXPECT_EQ(got.slots, wanted.slots);
        EXPECT_EQ(activation_bytes(part_of(of, layout), 1, got),
                  activation_bytes(stage.model_chunk, 1, wanted))
            << to_string(kind) << " " << policy << " " << s;
        if (kind == PipelineKind::ZbH1) {
          EXPECT_EQ(stage.waiting(), std::min<int64_t>(s + 1, 16));
        }
      }
}

// No stage between takes more than those at the ends.
TEST(UsualBytes, TheEndsTakeMost) {
  Job of = job("nano", "bf16");
  of.batch = 64;
  for (const PipelineKind kind : {PipelineKind::GPipe, PipelineKind::OneFOneB, PipelineKind::ZbH1})
    for (const char* policy : {"none", "full"}) {
      const PlanLayout layout{.pp = 8, .recompute = policy, .schedule = kind};
      SizeTable sizes;
      int64_t most = 0;
      for (int64_t s = 0; s < 8; ++s)
        most = std::max(most, usual_bytes(of, layout, s, sizes).total());
      EXPECT_EQ(most_bytes(of, layout, sizes).bytes.total(), most) << to_string(kind) << policy;
    }
}

}  // namespace
}  // namespace ladder::planner
