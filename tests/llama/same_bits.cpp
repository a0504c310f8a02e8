// llama-nano in every chapter: a block is data, so what holds for GPT-2's must hold for LLaMA's.
// Each chapter against 06 on one rank; the full cross of layouts is for the night.
#include <fmt/format.h>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

constexpr Range kShort = {0, 3};

class LlamaBits : public SameTrace {
 protected:
  static constexpr const char* kModel = "--model llama-nano --batch 8 --clip 1 ";

  Trace one(const std::string& flags = "--layers 4 ", Range range = kShort) const {
    return trace("06_checkpointing", kModel + flags, range);
  }
  void expect_same(const std::vector<std::pair<std::string, std::string>>& runs,
                   const std::string& flags = "--layers 4 ") const {
    const Trace alone = one(flags);
    for (const auto& [chapter, ours] : runs)
      EXPECT_TRUE(same_trace(alone, trace(chapter, kModel + flags + ours, kShort)))
          << chapter << " " << ours;
  }
};

// Each value of ranks, micro-batch and policy meets each chapter of its kind.
TEST_F(LlamaBits, SharedBatch) {
  expect_same({{"06_checkpointing", "--micro-batch 2 --threads 3"},
               {"07_ddp", "--ranks 4 --micro-batch 1"},
               {"08_zero1", "--ranks 2 --micro-batch 1 --recompute selective"},
               {"09_zero2", "--ranks 4 --micro-batch 2 --recompute full"},
               {"10_zero3", "--ranks 8 --recompute every:2"},
               {"10_zero3", "--ranks 2 --micro-batch 1 --recompute sqrt"},
               {"30_hsdp", "--ranks 4 --replicas 2 --micro-batch 1"},
               {"14_stability", "--micro-batch 4"},
               {"15_batch_size", "--ranks 2 --micro-batch 2"},
               {"16_fp8", "--ranks 2 --micro-batch 4"},
               {"17_head_chunks", "--micro-batch 4"},
               {"18_offload", "--ranks 2 --recompute full --offload inputs"}});
}

TEST_F(LlamaBits, SharedLayers) {
  expect_same({{"11_tensor_parallel", "--tp 2 --micro-batch 2"},
               {"11_tensor_parallel", "--tp 4 --sequence-parallel --recompute selective"},
               {"12_pipeline_parallel", "--pp 2 --micro-batch 2 --pipeline zb-h1"},
               {"12_pipeline_parallel", "--pp 4 --micro-batch 1 --recompute full"},
               {"12_pipeline_parallel", "--pp 2 --micro-batch 2 --pipeline interleaved"},
               {"13_3d_parallel", "--tp 2 --dp 2 --pp 2 --micro-batch 1"},
               {"13_3d_parallel", "--tp 4 --dp 1 --pp 2 --micro-batch 2 --sequence-parallel"}});
}

TEST_F(LlamaBits, Recomputation) {
  const Trace kept = one();
  for (const char* policy :
       {"every:2", "sqrt", "full", "selective", "selective:attention", "selective:mlp"})
    EXPECT_TRUE(same_trace(kept, one(fmt::format("--layers 4 --recompute {}", policy)))) << policy;
}

TEST_F(LlamaBits, Narrow) {
  for (const char* precision : {"bf16", "fp16"})
    expect_same({{"08_zero1", "--ranks 2 --micro-batch 2 --recompute selective"},
                 {"12_pipeline_parallel", "--pp 2 --micro-batch 2 --pipeline zb-h1"}},
                fmt::format("--layers 4 --loss-scale 1024 --precision {} ", precision));
}

// `ref` is the specification, not the fast one: a smaller model.
TEST_F(LlamaBits, Ref) {
  expect_same({{"09_zero2", "--ranks 2 --micro-batch 2"},
               {"13_3d_parallel", "--tp 2 --dp 2 --pp 1 --micro-batch 2"}},
              "--backend ref --layers 2 --channels 32 --heads 4 ");
}

TEST_F(LlamaBits, TiedHead) {
  expect_same({{"10_zero3", "--ranks 2"}, {"11_tensor_parallel", "--tp 2"}},
              "--layers 2 --tied-head ");
}

TEST_F(LlamaBits, LongerThanItsPreset) {
  expect_same({{"10_zero3", "--ranks 2"}, {"11_tensor_parallel", "--tp 2 --sequence-parallel"}},
              "--layers 2 --seq-len 80 ");
}

// A run of one chapter goes on in another.
TEST_F(LlamaBits, Resume) {
  const std::string layers = std::string(kModel) + "--layers 4 ";
  const Trace whole = trace("06_checkpointing", layers, {0, kSteps});
  const Trace first = trace("10_zero3", layers + "--ranks 2 --save half", {0, kHalf});
  const Trace then =
      trace("13_3d_parallel", layers + "--tp 2 --dp 2 --pp 2 --load half", {kHalf, kSteps});
  EXPECT_TRUE(same_trace(whole, joined(first, then)));
}

// What is equal above depends on each of the four parts.
TEST_F(LlamaBits, ControlsAreOthers) {
  EXPECT_TRUE(different_trace(
      one(), trace("07_ddp", std::string(kModel) + "--layers 4 --ranks 2 --fault skip:all_reduce:1",
                   kShort)));
  EXPECT_TRUE(different_trace(one(), one("--layers 4 --heads 4 ")));
}

}  // namespace
}  // namespace ladder::test
