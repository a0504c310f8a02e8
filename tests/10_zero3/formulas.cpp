// 10_zero3: bytes in memory and on the wire, written out.
#include "tests/common/memory.h"
#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

class Zero3Bytes : public MemoryRuns {
 protected:
  nlohmann::json run(const std::string& chapter, int64_t N, const std::string& flags) const {
    return report(chapter,
                  fmt::format("--layers {} --steps 1 --batch 16 --ranks {} {}", L, N, flags));
  }
  nlohmann::json run(int64_t N, const std::string& flags) const {
    return run("10_zero3", N, flags);
  }
  int64_t traffic(int64_t N, const std::string& flags) const {
    return run(N, flags)["extra"]["traffic"]["measured"];
  }
  /// Elements of a block, cut into N shards.
  static int64_t block(int64_t N) { return (12 * C * C + 13 * C + 64 * N - 1) / (64 * N) * 64 * N; }
  static constexpr int64_t L = 3, C = kChannels;
};

// Besides what 09 has: rooms for gathered sections, two or one, or all of them.
TEST_F(Zero3Bytes, RoomsForAFewSections) {
  plan_only();
  const int64_t N = 4;
  const auto more = [&](const std::string& flags, const std::string& own) {
    return predicted(run(N, flags + own), Mem::Workspace) -
           predicted(run("09_zero2", N, flags), Mem::Workspace);
  };
  EXPECT_EQ(more("", ""), 4 * 2 * block(N));
  EXPECT_EQ(more("--precision bf16", ""), 2 * 2 * block(N));
  EXPECT_EQ(more("", " --prefetch 0"), 4 * block(N));
  EXPECT_EQ(more("", " --reshard-after-forward 0"), 4 * parameters(L, N));
}

// Forward gathers everything, backward all blocks but the last, which is still there. A micro-step
// that is not the first finds block 0 where the one before has left it.
TEST_F(Zero3Bytes, AboutThreePTravelEachMicroStep) {
  for (const int64_t GA : {1, 2, 4})
    for (const auto& [precision, bytes] : {std::pair{"fp32", 4}, {"bf16", 2}}) {
      const int64_t N = GA == 2 ? 4 : 2, P = parameters(L, N), others = N - 1;
      const std::string flags =
          fmt::format("--micro-batch {} --precision {}", 16 / N / GA, precision);
      const int64_t gathered = GA * (P + (L - 1) * block(N)) - (GA - 1) * block(N);
      EXPECT_EQ(traffic(N, flags), (4 * GA * P + bytes * gathered) / N * others) << N << flags;
      // With one room, backward gathers the last block, too, and nothing is left for the next.
      EXPECT_EQ(traffic(N, flags + " --prefetch 0"),
                (4 * GA * P + bytes * GA * (P + L * block(N))) / N * others)
          << N << flags;
      // Gathered once: the traffic of stage 2.
      EXPECT_EQ(traffic(N, flags + " --reshard-after-forward 0"),
                (4 * GA * P + bytes * P) / N * others)
          << N << flags;
    }
}

// What a validation has gathered does not save the next step its own.
TEST_F(Zero3Bytes, AsPredictedAfterAValidation) {
  for (const char* reshard : {"0", "1"}) {
    const auto traffic =
        report("10_zero3", fmt::format("--layers {} --steps 2 --eval-every 1 --ranks 2 "
                                       "--reshard-after-forward {}",
                                       L, reshard))["extra"]["traffic"];
    EXPECT_EQ(traffic["predicted"], traffic["measured"]) << reshard;
  }
}

// Recomputation of all but the last block uses the weights that backward uses.
TEST_F(Zero3Bytes, FullRecomputationGathersNothingMore) {
  EXPECT_EQ(traffic(2, "--recompute full"), traffic(2, ""));
}

}  // namespace
}  // namespace ladder::test
