// Bytes, weights, keys and values and operations of each change, as the formulas say.
#include "tests/common/memory.h"
namespace ladder::test {
namespace {

const std::string k19 = "19_llama";

class BlockMemory : public MemoryRuns {
 protected:
  static constexpr int64_t C = kChannels, NH = 8, HS = C / NH, T = 16, B = 4, L = 3;

  nlohmann::json of(const std::string& flags) const {
    return report(k19, "--layers 3 --steps 1 " + flags);
  }
  static int64_t counted(const nlohmann::json& report, const char* what) {
    return report.at("extra").at("block").at(what).at("measured");
  }
};

// What the table in llama.h says, written out: weights, and numbers a token that a block keeps.
TEST_F(BlockMemory, WeightsAndActivationsChangeAsTheTableSays) {
  const auto gpt2 = of("");
  EXPECT_GT(counted(gpt2, "flops"), 0);
  EXPECT_EQ(counted(gpt2, "weights"), (2 * 256 + T) * C + L * (12 * C * C + 13 * C) + 2 * C);
  const int64_t spared = NH - 4, F = 4 * C;
  struct Less {
    std::string flags;
    int64_t weights, kept, keys_and_values;
  };
  for (const auto& [flags, weights, kept, keys_and_values] :
       {Less{"--norm rms", L * 2 * C + C, L * 2 + 1, 0},
        // The same F: half as many weights more, and F numbers.
        Less{"--mlp swiglu --hidden 256", -L * (C * F + F), -L * F, 0},
        Less{"--position rope", T * C, 0, 0},
        Less{"--kv-heads 4", L * 2 * spared * HS * (C + 1), L * 2 * spared * HS,
             L * 2 * spared * HS},
        Less{"--no-bias", L * 9 * C, 0, 0}}) {
    const auto got = of(flags);
    EXPECT_EQ(counted(gpt2, "weights") - counted(got, "weights"), weights) << flags;
    EXPECT_EQ(measured(gpt2, Mem::Activation) - measured(got, Mem::Activation), 4 * B * T * kept)
        << flags;
    EXPECT_EQ(counted(gpt2, "keys_and_values") - counted(got, "keys_and_values"), keys_and_values)
        << flags;
  }
}

// At 8C/3 channels SwiGLU has GELU's weights and operations, to the nearest 128.
TEST_F(BlockMemory, SwiGluIsAsLargeAsGelu) {
  const auto weights = [&](const std::string& flags) {
    return counted(report(k19, "--layers 1 --steps 1 --no-bias --channels 192 " + flags),
                   "weights");
  };
  EXPECT_EQ(weights("--mlp swiglu"), weights("--mlp gelu"));
  EXPECT_EQ(weights("--mlp swiglu"), weights("--mlp swiglu --hidden 512"));
}

}  // namespace
}  // namespace ladder::test
