// 22_expert_parallel: rows that arrive are those that leave, and what is dropped does not travel.
// Bytes: tests/golden/bytes.json.
#include <numeric>
#include <vector>

#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class ExpertBytes : public MemoryRuns {
 protected:
  static constexpr int64_t L = 2, T = 16, B = 8;

  nlohmann::json run(const std::string& flags) const {
    return report("22_expert_parallel",
                  fmt::format("--model moe-nano --layers {} --batch {} --steps 1 {}", L, B, flags));
  }

  static std::vector<int64_t> rows(const nlohmann::json& got, const char* of) {
    return got["extra"]["expert_parallel"]["rows"][of];
  }
  static int64_t sum(const std::vector<int64_t>& x) {
    return std::accumulate(x.begin(), x.end(), int64_t{0});
  }
};

// One expert a token: a row for each token whose expert is not here. So all ranks together send
// what does not stay, and compute one row a token.
TEST_F(ExpertBytes, WhatArrivesIsWhatLeaves) {
  for (const std::string flags : {"--ep 4 --ranks 8 --experts-per-token 1 --no-renormalize",
                                  "--ep 8", "--ep 2 --experts-per-token 3 --precision bf16"}) {
    const auto got = run(flags);
    const auto& extra = got["extra"]["expert_parallel"];
    const std::vector<int64_t> arrived = extra["arrived"], computed = extra["computed"];
    EXPECT_EQ(sum(arrived), sum(rows(got, "of_owners"))) << flags;
    EXPECT_LE(sum(arrived), sum(rows(got, "of_experts"))) << flags;
    int64_t load = 0;
    for (const auto& block : got["extra"]["experts"]["load"])
      load += sum(block.get<std::vector<int64_t>>());
    EXPECT_EQ(sum(computed), load) << flags;
  }
}

// What a full expert drops does not travel.
TEST_F(ExpertBytes, DroppedTokensStay) {
  const auto all = run("--ep 4 --experts-per-token 1 --no-renormalize"),
             some = run("--ep 4 --experts-per-token 1 --no-renormalize --capacity 0.5");
  const double dropped = some["extra"]["experts"]["steps"]["dropped"][0];
  EXPECT_GT(dropped, 0.4);
  const std::vector<int64_t> computed = some["extra"]["expert_parallel"]["computed"];
  EXPECT_EQ(static_cast<double>(sum(computed)), (1 - dropped) * L * B * T);
  EXPECT_LT(sum(rows(some, "of_owners")), sum(rows(all, "of_owners")));
  // And there need not be room for it.
  EXPECT_LT(measured(some, Mem::Activation), measured(all, Mem::Activation));
}

}  // namespace
}  // namespace ladder::test
