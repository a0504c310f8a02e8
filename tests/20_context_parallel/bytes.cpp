// 20_context_parallel: bytes on the wire, and work, written out. All else that is counted:
// tests/golden/bytes.json.
#include <array>
#include <numeric>
#include <tuple>

#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class ContextBytes : public MemoryRuns {
 protected:
  static constexpr int64_t L = 3, C = 64, NH = 8, T = 512, Vp = 256, B = 2;

  ContextBytes() {
    std::string text;
    while (text.size() < 11 * T) text += read("text.txt");
    write("text.txt", text);
  }

  nlohmann::json run(int cp, const std::string& flags) const {
    return report("20_context_parallel",
                  fmt::format("--model gpt2-124m --vocab {} --layers {} --channels {} --heads {} "
                              "--seq-len {} --batch {} --micro-batch 1 --steps 1 --cp {} {}",
                              Vp, L, C, NH, T, B, cp, flags));
  }
  static int64_t sent(const nlohmann::json& got) {
    return got["extra"]["context"]["sent"]["measured"];
  }
  static std::vector<int64_t> pairs(const nlohmann::json& got) {
    return got["extra"]["context"]["pairs"]["measured"];
  }
};

// Elements that a rank sends for a layer and a sequence: forward, and backward.
TEST_F(ContextBytes, WhatEachWaySends) {
  for (const int64_t P : {2, 4, 8}) {
    const int64_t keys = 2 * T * C * (P - 1) / P, heads = 4 * T * C * (P - 1) / (P * P);
    for (const auto& [way, forward, backward] : {std::tuple{"gather", keys, 2 * keys},
                                                 {"ring", keys, 2 * keys},
                                                 {"ulysses", heads, 2 * heads}}) {
      const auto cp = static_cast<int>(P);
      const std::string flags = fmt::format("--context {} ", way);
      EXPECT_EQ(sent(run(cp, flags)), B * L * 4 * (forward + backward)) << way << P;
      if (P != 4) continue;
      EXPECT_EQ(sent(run(cp, flags + "--recompute full")),
                B * 4 * ((2 * L - 1) * forward + L * backward));
      // 16-bit keys, but gradients of keys in FP32.
      const int64_t wide = backward == 2 * keys ? keys : 0;
      EXPECT_EQ(sent(run(cp, flags + "--precision bf16")),
                B * L * (2 * forward + 2 * (backward - wide) + 4 * wide));
    }
  }
}

// Every rank has as many pairs of a query and a key; in contiguous order the last of four has
// (4 - 1/2) / 2 times the mean, but for the diagonal.
TEST_F(ContextBytes, WorkIsShared) {
  const int64_t all = 2 * B * L * NH * T * (T + 1) / 2;
  for (const std::string way : {"gather", "ulysses", "ring"})
    EXPECT_EQ(pairs(run(4, "--context " + way)), std::vector<int64_t>(4, all / 4)) << way;
  const std::vector<int64_t> uneven = pairs(run(4, "--context ring --order contiguous"));
  EXPECT_EQ(std::accumulate(uneven.begin(), uneven.end(), int64_t{0}), all);
  const double most = static_cast<double>(uneven.back()) / static_cast<double>(all / 4);
  EXPECT_GT(most, 1.73);
  EXPECT_LT(most, 1.75);
}

// Many layers, so that activations rule.
TEST_F(ContextBytes, ALongSequenceTakesLessThanHalfOnFourRanks) {
  const std::string flags =
      "--model llama-nano --layers 12 --channels 32 --seq-len 512 --batch 1 --micro-batch 1 "
      "--steps 1 --threads 1 ";
  const auto total = [&](const std::string& ours) {
    const auto got = report("20_context_parallel", flags + ours);
    int64_t sum = 0;
    for (size_t i = 0; i < kMemCount; ++i) sum += measured(got, static_cast<Mem>(i));
    return sum;
  };
  EXPECT_LT(2 * total("--cp 4 --context ring"), total("--cp 1"));
}

}  // namespace
}  // namespace ladder::test
