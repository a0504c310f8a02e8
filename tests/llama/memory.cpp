// Bytes of llama-nano in every chapter, and the plan of a model that no test can train.
#include "tests/common/memory.h"

#include "common/model/layout.h"
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class LlamaMemory : public MemoryRuns {
 protected:
  void expect_predicted(const std::vector<std::pair<std::string, std::string>>& runs) const {
    for (const auto& [chapter, flags] : runs) {
      const auto got = report(chapter,
                              "--model llama-nano --layers 4 --channels 128 --steps 1 "
                              "--batch 8 " +
                                  flags);
      EXPECT_TRUE(as_predicted(got)) << chapter << " " << flags;
    }
  }
};

TEST_F(LlamaMemory, IsAsPredictedInEveryChapter) {
  expect_predicted({{"01_sgd", ""},
                    {"02_adamw", ""},
                    {"03_schedules", "--tied-head"},
                    {"04_clipping", "--micro-batch 2"},
                    {"05_mixed_precision", "--precision bf16"},
                    {"06_checkpointing", "--recompute selective --precision fp16"},
                    {"07_ddp", "--ranks 2 --micro-batch 1"},
                    {"08_zero1", "--ranks 2 --precision bf16"},
                    {"09_zero2", "--ranks 4"},
                    {"10_zero3", "--ranks 2 --recompute every:2"},
                    {"11_tensor_parallel", "--tp 4"},
                    {"11_tensor_parallel", "--tp 2 --sequence-parallel --precision bf16"},
                    {"12_pipeline_parallel", "--pp 2 --pipeline zb-h1 --micro-batch 1"},
                    {"12_pipeline_parallel", "--pp 4 --micro-batch 2 --recompute selective"},
                    {"13_3d_parallel", "--tp 2 --dp 2 --pp 2 --micro-batch 1 --sequence-parallel"},
                    {"14_stability", ""},
                    {"15_batch_size", "--ranks 2"},
                    {"16_fp8", "--ranks 2 --precision fp8"},
                    {"17_head_chunks", ""},
                    {"18_offload", "--ranks 2"},
                    {"29_monitor", "--ranks 2 --watch-every 1 --agc 0.1"}});
}

// What is computed twice is counted as it is predicted: the parts of a block by their own sizes.
TEST_F(LlamaMemory, OperationsDoneTwiceAreAsPredicted) {
  for (const char* policy : {"full", "every:2", "selective"}) {
    const auto got = report("06_checkpointing",
                            fmt::format("--model llama-nano --layers 4 --channels 128 --steps 1 "
                                        "--recompute {}",
                                        policy));
    const auto& twice = got["extra"]["recompute"]["flops_twice"];
    EXPECT_EQ(twice["predicted"], twice["measured"]) << policy;
    EXPECT_GT(twice["measured"], 0) << policy;
  }
}

TEST_F(LlamaMemory, BytesSentAreAsPredicted) {
  for (const char* flags : {"--tp 4", "--tp 2 --sequence-parallel"}) {
    const auto got =
        report("11_tensor_parallel",
               fmt::format("--model llama-nano --layers 4 --channels 128 --steps 1 {}", flags));
    const auto& sent = got["extra"]["traffic"];
    EXPECT_EQ(sent["predicted"], sent["measured"]) << flags;
    EXPECT_GT(sent["measured"], 0) << flags;
  }
}

// llama3-70b at tp 8, pp 8, dp 8 in BF16. Of a block a rank has an eighth of qkv, proj, gate, up
// and down, and both gains; of the optimizer's states and master weights, an eighth of that.
TEST_F(LlamaMemory, PlanOfSeventyBillion) {
  const std::string flags =
      "--plan-only --world 512 --model llama3-70b --tp 8 --pp 8 --dp 8 --batch 512 "
      "--micro-batch 1 --precision bf16 --recompute selective --sequence-parallel";
  const Ended ended = run("13_3d_parallel", words(flags));
  ASSERT_EQ(ended.status, 0) << ended.err;
  const int64_t C = 8192, qkv = (64 + 16) * 128, F = 28672;
  const int64_t P = 10 * (C * (qkv + C + 3 * F) / 8 + 2 * C);  // of a stage without ends
  const auto gib = [](int64_t bytes) {
    return fmt::format(" {:.2f} GiB ", static_cast<double>(bytes) / (1 << 30));
  };
  const auto mib = [](int64_t bytes) {
    return fmt::format(" {:.2f} MiB ", static_cast<double>(bytes) / (1 << 20));
  };
  for (const std::string& says : {gib(2 * P), mib(4 * P / 8), gib(4 * P), mib(8 * P / 8)})
    EXPECT_NE(ended.out.find(says), std::string::npos) << says << "\n" << ended.out;
}

// --seq-len: a table of positions is as long as it is, but in a plan.
TEST_F(LlamaMemory, SequencesMayBeLongerThanThePreset) {
  EXPECT_TRUE(as_predicted(report("06_checkpointing",
                                  "--model llama-nano --channels 128 --layers 2 "
                                  "--seq-len 32 --steps 1")));
  const Ended plan = run("13_3d_parallel", words("--plan-only --model nano --seq-len 4096"));
  EXPECT_EQ(plan.status, 0) << plan.err;
}

}  // namespace
}  // namespace ladder::test
