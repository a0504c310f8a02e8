// The usual accounting: bytes a parameter by each convention, the tables that people quote, and
// that its parts are those of the chapters.
#include "chapters/23_planner/usual_memory.h"

#include <algorithm>
#include <array>
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
  Job job{.gpt = preset(model), .gpus = 1, .batch = 1, .precision = {}, .gradients = gradients};
  job.precision.name = precision;
  return job;
}

double sum(const std::array<double, 4>& bytes) { return bytes[0] + bytes[1] + bytes[2] + bytes[3]; }

TEST(UsualBytes, AParameterByEachConvention) {
  EXPECT_EQ(sum(bytes_a_parameter(job("nano", "fp32"), 0, 1)), 16);
  EXPECT_EQ(sum(bytes_a_parameter(job("nano", "bf16", Gradients::Narrow), 0, 1)), 16);
  EXPECT_EQ(sum(bytes_a_parameter(job("nano", "bf16", Gradients::Fp32), 0, 1)), 18);
  EXPECT_EQ(sum(bytes_a_parameter(job("nano", "bf16", Gradients::Both), 0, 1)), 20);
}

// 1910.02054, figure 1: 7.5 B parameters on 64 ranks, 120 / 31.4 / 16.6 / 1.9 GB.
TEST(UsualBytes, ZerosExample) {
  const Job of = job("nano", "bf16", Gradients::Narrow);
  const std::vector<double> printed = {120, 31.4, 16.6, 1.88};
  for (int zero = 0; zero <= 3; ++zero)
    EXPECT_NEAR(7.5 * sum(bytes_a_parameter(of, zero, 64)), printed[static_cast<size_t>(zero)],
                0.05)
        << zero;
}

// What tables give for 7, 70 and 405 B at 16 bytes, and for 1 B: 16, 112, 1,120 and 6,480 GB.
TEST(UsualBytes, TheTablesOfStates) {
  const double each = sum(bytes_a_parameter(job("nano", "bf16", Gradients::Narrow), 0, 1));
  EXPECT_EQ(1 * each, 16);
  EXPECT_EQ(7 * each, 112);
  EXPECT_EQ(70 * each, 1120);
  EXPECT_EQ(405 * each, 6480);
}

// The whole of a stage is that many bytes for each of its elements, padding counted.
TEST(UsualBytes, AreThoseOfAParameterTimesElements) {
  for (const Gradients gradients : {Gradients::Fp32, Gradients::Narrow, Gradients::Both})
    for (int zero = 0; zero <= 3; ++zero) {
      const Job of = job("llama-tiny", "bf16", gradients);
      PlanLayout layout;
      layout.dp = 4;
      layout.zero = zero;
      SizeTable sizes;
      const StageSizes& n = sizes.of(of, layout, 0);
      const MemoryBytes bytes = usual_bytes(of, layout, 0, sizes);
      const auto a_parameter = bytes_a_parameter(of, zero, 4);
      const auto all = static_cast<double>(n.all);
      EXPECT_EQ(n.own * 4, n.all);
      EXPECT_EQ(static_cast<double>(bytes[Mem::Param]), all * a_parameter[0]);
      EXPECT_EQ(static_cast<double>(bytes[Mem::Master]), all * a_parameter[1]);
      EXPECT_EQ(static_cast<double>(bytes[Mem::Grad]), all * a_parameter[2]);
      EXPECT_EQ(static_cast<double>(bytes[Mem::Optim]), all * a_parameter[3]);
    }
}

// 2205.05198: s b h (34 - 2) / t without dropout's masks, the attention matrix not kept: with a
// sum of exponentials for each query and head, and two numbers for each norm.
TEST(UsualBytes, ActivationsAreThoseOfThePaper) {
  Job of = job("gpt3-175b", "bf16");
  const int64_t s = of.gpt.seq_len, h = of.gpt.channels, L = of.gpt.layers, NH = of.gpt.heads;
  for (const int64_t t : {1, 2, 4, 8}) {
    PlanLayout layout;
    layout.tp = t;
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
        PlanLayout layout;
        layout.pp = 4;
        layout.schedule = kind;
        layout.chunks = kind == PipelineKind::Interleaved ? 2 : 1;
        layout.recompute =
            std::string(policy) == "every:2" && layout.chunks == 2 ? "every:1" : policy;
        PipelineOptions options;
        options.kind = kind;
        const StageLayout stage(options, of.gpt, s, 4, layout.micros(of));
        const Recompute recompute(layout.recompute, stage.part.layers, /*at_once=*/false);
        ActivationPlan wanted = stage.plan(of.precision.plan(), recompute);
        const ActivationPlan got = activations_of(of, layout, s);
        EXPECT_EQ(got.slots, wanted.slots);
        EXPECT_EQ(activation_bytes(part_of(of, layout), 1, got),
                  activation_bytes(stage.part, 1, wanted))
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
      PlanLayout layout{.pp = 8};
      layout.schedule = kind;
      layout.recompute = policy;
      SizeTable sizes;
      int64_t most = 0;
      for (int64_t s = 0; s < 8; ++s)
        most = std::max(most, usual_bytes(of, layout, s, sizes).total());
      EXPECT_EQ(most_bytes(of, layout, sizes).bytes.total(), most) << to_string(kind) << policy;
    }
}

}  // namespace
}  // namespace ladder::planner
