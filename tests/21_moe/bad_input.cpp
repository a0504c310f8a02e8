// Bad input that 21_moe refuses, and models with experts in all other chapters.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadExperts : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadExperts, ::testing::Values("21_moe"), chapter_name);

TEST_P(BadExperts, Sizes) {
  const std::string moe = "--model moe-nano ";
  expect_refused({{moe + "--experts 0", "--experts must be from 1 to 1024, not 0"},
                  {moe + "--experts-per-token 9", "must be from 1 to the 8 of --experts, not 9"},
                  {moe + "--experts-per-token 0", "must be from 1 to the 8 of --experts, not 0"},
                  {moe + "--experts-per-token 1", "--experts-per-token 1 needs --no-renormalize"},
                  {"--model llama-nano --experts 4", "legal are also 2 to 4"},
                  {moe + "--experts 1", "must be from 1 to the 1 of --experts, not 2"},
                  {moe + "--shared-experts -1", "--shared-experts must be from 0 to 1024, not -1"},
                  {moe + "--hidden 3 --channels 24 --heads 4", "must be a multiple of 64"},
                  {moe + "--mlp gelu", "experts are SwiGLUs without biases"},
                  {"--experts 4", "experts are SwiGLUs without biases"},
                  {moe + "--router hash", "{softmax,sigmoid}"}});
}

TEST_P(BadExperts, Factors) {
  const std::string moe = "--model moe-nano ";
  for (const std::string bad : {"-1", "nan", "inf"})
    expect_refused({{moe + "--capacity " + bad, "--capacity must be from 0"},
                    {moe + "--balance-loss " + bad, "--balance-loss must be at least 0"},
                    {moe + "--z-loss " + bad, "--z-loss must be at least 0"},
                    {moe + "--bias-rate " + bad, "--bias-rate must be at least 0"}});
}

TEST_P(BadExperts, FlagsOfExpertsWithoutExperts) {
  for (const std::string flag : {"--experts-per-token 2", "--shared-experts 1", "--router sigmoid",
                                 "--no-renormalize", "--capacity 1"})
    expect_refused(BadInput{"--model llama-nano " + flag, "--model llama-nano has no experts"});
}

class ModelWithExperts : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, ModelWithExperts,
                         ::testing::Values("01_sgd", "06_checkpointing", "10_zero3",
                                           "13_3d_parallel", "16_fp8", "19_llama"),
                         chapter_name);
TEST_P(ModelWithExperts, BelongsToChapter21) {
  expect_refused(BadInput{"--model moe-nano",
                          "--model moe-nano has experts, which belong to 21_moe and "
                          "22_expert_parallel: run ch21_moe, or with more than one rank "
                          "ch22_expert_parallel"});
}

}  // namespace
}  // namespace ladder::test
