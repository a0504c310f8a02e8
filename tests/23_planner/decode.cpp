// Decoding: bytes that a pass reads, worked out by hand, and what decides how long it takes.
#include <gtest/gtest.h>

#include "chapters/23_planner/decode_time.h"
#include "chapters/23_planner/plan_options.h"

namespace ladder::planner {
namespace {

Job decode_job(const std::string& model, const std::string& precision = "bf16") {
  planner::Question question;
  question.job.run.model = model;
  question.job.run.seq_len = 8192;
  question.job.run.plan_only = question.job.run.takes_experts = true;
  question.precision.name = precision;
  return question.asked();
}
Device one_gpu() { return read_device(LADDER_DEVICES, "h100"); }

// 8.03 billion parameters, of which a table of 128,256 x 4,096 is not read. A token's cache is
// 2 x 32 x 8 x 128 numbers: 128 KiB, so 8,192 tokens take a GiB.
TEST(Decode, BytesOfLlama3) {
  const Job job = decode_job("llama3-8b");
  EXPECT_EQ(decode_bytes(job, 3) - decode_bytes(job, 2), int64_t{1} << 30);
  const DecodePass one = decode_pass(job, one_gpu(), 1, 8192);
  EXPECT_EQ(one.weights, 2.0 * (8030261248 - 128256 * 4096));
  EXPECT_EQ(one.cache, 1 << 30);
  EXPECT_DOUBLE_EQ(one.seconds(), (one.weights + one.cache) / (3352e9 * 0.85));
  EXPECT_EQ(decode_bytes(decode_job("llama3-8b", "fp32"), 0), 4 * int64_t{8030261248});
}

// Texts share the weights, and each has its own cache: so they are never worse together, and never
// B times as good.
TEST(Decode, TextsShareTheWeights) {
  const Job job = decode_job("llama3-8b");
  for (const int64_t t : {1, 4096, 8192})
    for (int64_t B = 1; B < 64; B *= 2) {
      const DecodePass few = decode_pass(job, one_gpu(), B, t),
                       more = decode_pass(job, one_gpu(), 2 * B, t);
      EXPECT_EQ(more.weights, few.weights);
      EXPECT_EQ(more.cache, 2 * few.cache);
      EXPECT_GT(more.rate(), few.rate());
      EXPECT_LT(more.rate(), 2 * few.rate());
    }
  const DecodePass many = decode_pass(job, one_gpu(), 4096, 1);
  EXPECT_EQ(many.seconds(), many.compute);
}

// One row reads 2 of 8 experts, two rows 3.5 in the mean, many rows all.
TEST(Decode, ExpertsThatNobodyChoseAreNotRead) {
  const GptConfig gpt = decode_job("mixtral-8x7b").gpt;
  const auto expert = static_cast<double>(gpt.layers * gpt.expert_matrices());
  const double all = elements_read(gpt, 100000);
  EXPECT_DOUBLE_EQ(all, static_cast<double>(ParamLayout(gpt).live() - gpt.vocab * gpt.channels));
  EXPECT_DOUBLE_EQ(elements_read(gpt, 1), all - 6 * expert);
  EXPECT_DOUBLE_EQ(elements_read(gpt, 2), all - 4.5 * expert);
}

}  // namespace
}  // namespace ladder::planner
