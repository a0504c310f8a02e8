// Branches: their checkpoints go to their parents and back.
#include <algorithm>

#include <fmt/format.h>

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class Branches : public Programs {};

struct Exchange {
  const char *branch, *parent;
  const char* states;  ///< that the branch adds
};
constexpr Exchange kExchanges[] = {{"14_stability", "04_clipping", "spike_guard"},
                                   {"15_batch_size", "07_ddp", "noise_scale"},
                                   {"16_fp8", "07_ddp", "fp8"},
                                   {"17_head_chunks", "06_checkpointing", ""},
                                   {"18_offload", "10_zero3", ""},
                                   {"19_llama", "06_checkpointing", ""},
                                   {"21_moe", "19_llama", "router_bias"},
                                   {"22_expert_parallel", "09_zero2", "router_bias"},
                                   {"26_packing", "06_checkpointing", "documents"},
                                   {"27_data_order", "07_ddp", "documents"},
                                   {"36_finetune", "07_ddp", "documents"},
                                   {"29_monitor", "08_zero1", "batches, detectors, spike_guard"},
                                   {"32_optimizers", "08_zero1", ""}};

TEST_F(Branches, ExchangeCheckpointsWithTheirParents) {
  const std::vector<std::string> built = chapters_from("01_sgd");
  for (const auto& [branch, parent, states] : kExchanges) {
    if (std::ranges::count(built, branch) == 0) continue;
    SCOPED_TRACE(branch);
    train(parent, "--steps 1 --save trunk");
    const std::string there = train(branch, "--steps 2 --load trunk --save branch").err;
    const std::string back = train(parent, "--steps 3 --load branch").err;
    if (*states == 0) {
      EXPECT_EQ(there + back, "");
    } else {
      EXPECT_TRUE(there.ends_with(fmt::format("lacks states, which start fresh: {}\n", states)))
          << there;
      EXPECT_TRUE(
          back.ends_with(fmt::format("another chapter, which are left aside: {}\n", states)))
          << back;
    }
  }
}

}  // namespace
}  // namespace ladder::test
