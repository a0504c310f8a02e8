// 07 to 10, 18 and 30: bytes of one rank are those of 06; and bytes of 07 to 10, written out. That
// bytes are as predicted: ../layouts.txt.
#include "tests/common/memory.h"

#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

class RanksMemory : public MemoryRuns, public ::testing::WithParamInterface<DataParallel> {
 protected:
  nlohmann::json run(const std::string& flags) const {
    return report(GetParam().chapter, "--steps 1 --layers 2 --loss-scale 1024 " + flags);
  }
};
INSTANTIATE_TEST_SUITE_P(DataParallel, RanksMemory, ::testing::ValuesIn(data_parallel()), row_name);

// Except for Workspace where gradients or weights of one section lie: one rank has that, too.
TEST_P(RanksMemory, OneRankIsChapter06) {
  plan_only();
  for (const std::string flags : {"", "--precision bf16 --batch 8 --micro-batch 1"}) {
    const auto one = run(flags), plain = report("06_checkpointing",
                                                "--steps 1 --layers 2 --loss-scale 1024 " + flags);
    for (const Mem mem : {Mem::Param, Mem::Master, Mem::Grad, Mem::Optim, Mem::Activation,
                          Mem::Workspace, Mem::Comm})
      if (mem != Mem::Workspace || !GetParam().each_micro_step) {
        EXPECT_EQ(predicted(one, mem), predicted(plain, mem)) << flags << static_cast<int>(mem);
      }
  }
}

using DdpMemory = MemoryRuns;

// A stage of ZeRO has an N-th of one thing more than the stage before: states and master, then
// gradients, then weights.
TEST_F(DdpMemory, WhatEachStageOfZeroShards) {
  plan_only();
  const std::vector<std::string> chapters{"07_ddp", "08_zero1", "09_zero2", "10_zero3"};
  for (int64_t zero = 0; zero < 4; ++zero)
    for (const int64_t N : {1, 2, 4, 8})
      for (const auto& [precision, bytes] : {std::pair{"fp32", 4}, {"bf16", 2}}) {
        SCOPED_TRACE(fmt::format("ZeRO {}, {} ranks, {}", zero, N, precision));
        const int64_t P = parameters(8, zero == 0 ? 1 : N);
        const auto part = [&](int64_t from) { return zero >= from ? P / N : P; };
        const auto got = report(chapters[static_cast<size_t>(zero)],
                                fmt::format("--batch 8 --ranks {} --precision {}", N, precision));
        EXPECT_EQ(predicted(got, Mem::Param), bytes * part(3));
        EXPECT_EQ(predicted(got, Mem::Master), bytes == 4 ? 0 : 4 * part(1));
        EXPECT_EQ(predicted(got, Mem::Grad), 4 * part(2));
        EXPECT_EQ(predicted(got, Mem::Optim), 8 * part(1));
      }
}

}  // namespace
}  // namespace ladder::test
