// 08_zero1: bytes in memory and on the wire, written out.
#include "tests/common/memory.h"
#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

class Zero1Bytes : public MemoryRuns {
 protected:
  nlohmann::json run(int64_t N, const std::string& flags) const {
    return report("08_zero1",
                  fmt::format("--layers {} --steps 1 --batch 16 --ranks {} {}", L, N, flags));
  }
  static constexpr int64_t L = 3, C = kChannels;
};

TEST_F(Zero1Bytes, TheLargestMessageIsABlock) {
  plan_only();
  for (const int64_t N : {1, 2, 4, 8}) {
    const int64_t block = round_up(12 * C * C + 13 * C, 64 * N);
    EXPECT_EQ(predicted(run(N, ""), Mem::Comm), N == 1 ? 0 : 2 * 4 * block);
  }
}

TEST_F(Zero1Bytes, TwoPTravel) {
  for (const int64_t N : {2, 4, 8})
    for (const auto& [flags, bytes] :
         {std::pair{"", 4 + 4}, {"--precision bf16", 4 + 2}, {"--micro-batch 1", 4 + 4}})
      EXPECT_EQ(run(N, flags)["extra"]["traffic"]["measured"],
                bytes * (parameters(L, N) / N) * (N - 1))
          << N << " " << flags;
}

TEST_F(Zero1Bytes, AsMuchAsAnAllReduceButForPadding) {
  const int64_t N = 4,
                plain = report(
                    "07_ddp",
                    "--layers 3 --steps 1 --batch 16 --ranks 4")["extra"]["traffic"]["measured"];
  const int64_t sharded = run(N, "")["extra"]["traffic"]["measured"];
  EXPECT_GE(sharded, plain);
  EXPECT_LE(sharded - plain, 2 * 4 * (L + 2) * 64 * N);
}

}  // namespace
}  // namespace ladder::test
