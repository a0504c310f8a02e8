// 36_finetune: bytes of adapters, of a frozen base and of what learns.
#include "tests/common/memory.h"

#include "tests/36_finetune/chats.h"

namespace ladder::test {
namespace {

class FinetuneMemory : public Programs {
 protected:
  FinetuneMemory() {
    write("chats.jsonl", some_chats(40));
    train("04_clipping", "--model tiny --layers 2 --steps 1 --save base");
    train("06_checkpointing", "--model llama-tiny --layers 2 --steps 1 --save llama");
  }
  nlohmann::json run(const std::string& flags) const {
    return report("36_finetune",
                  "--data chats.jsonl --model tiny --steps 2 --pack-window 8 " + flags);
  }
};

TEST_F(FinetuneMemory, AreAsPredicted) {
  for (const std::string base : {"base", "llama"})
    for (const char* flags :
         {"", "--lora-rank 4", "--lora-rank 4 --precision bf16", "--lora-rank 3 --micro-batch 1",
          "--lora-rank 4 --ranks 2 --recompute full", "--lora-rank 2 --unpacked"})
      EXPECT_TRUE(as_predicted(run("--base " + base + " " + flags))) << base << flags;
}

// Two states and a gradient of four bytes for each number of an adapter, r (N + K) a layer.
TEST_F(FinetuneMemory, OnlyAdaptersHaveStates) {
  const int64_t C = 128, r = 4, layer = r * (3 * C + C + C + C + 4 * C + C + C + 4 * C);
  const auto lora = run("--base base --lora-rank 4"), full = run("--base base");
  EXPECT_EQ(measured(lora, Mem::Grad), 4 * 2 * layer);
  EXPECT_EQ(measured(lora, Mem::Optim), 8 * 2 * layer);
  EXPECT_EQ(measured(lora, Mem::Param), measured(full, Mem::Param) + 4 * 2 * layer);
}

}  // namespace
}  // namespace ladder::test
