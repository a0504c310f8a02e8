// 08 to 10: bytes in memory and on the wire, written out. And a shard's buffer where a whole one
// belongs, or the other way round, does not compile: the compiler runs that test.
#include <concepts>

#include "chapters/08_zero1/zero1.h"
#include "chapters/09_zero2/zero2.h"
#include "chapters/10_zero3/zero3.h"
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class ZeroBytes : public MemoryRuns {
 protected:
  nlohmann::json run(const std::string& chapter, int64_t N, const std::string& flags) const {
    return report(chapter,
                  fmt::format("--layers {} --steps 1 --batch 16 --ranks {} {}", L, N, flags));
  }
  int64_t traffic(const std::string& chapter, int64_t N, const std::string& flags) const {
    return run(chapter, N, flags)["extra"]["traffic"]["measured"];
  }
  /// Elements of a block, cut into N shards.
  static int64_t block(int64_t N) { return round_up(12 * C * C + 13 * C, 64 * N); }
  static constexpr int64_t L = 3, C = kChannels;
};
using Zero1Bytes = ZeroBytes;
using Zero2Bytes = ZeroBytes;
using Zero3Bytes = ZeroBytes;

TEST_F(Zero1Bytes, TheLargestMessageIsABlock) {
  plan_only();
  for (const int64_t N : {1, 2, 4, 8})
    EXPECT_EQ(predicted(run("08_zero1", N, ""), Mem::Comm), N == 1 ? 0 : 2 * 4 * block(N));
}

TEST_F(Zero1Bytes, TwoPTravel) {
  for (const int64_t N : {2, 4, 8})
    for (const auto& [flags, bytes] :
         {std::pair{"", 4 + 4}, {"--precision bf16", 4 + 2}, {"--micro-batch 1", 4 + 4}})
      EXPECT_EQ(traffic("08_zero1", N, flags), bytes * (parameters(L, N) / N) * (N - 1))
          << N << " " << flags;
}

TEST_F(Zero1Bytes, AsMuchAsAnAllReduceButForPadding) {
  const int64_t N = 4, plain = traffic("07_ddp", N, ""), sharded = traffic("08_zero1", N, "");
  EXPECT_GE(sharded, plain);
  EXPECT_LE(sharded - plain, 2 * 4 * (L + 2) * 64 * N);
}

// Besides what 08 has: the gradient of one section whole, or of two, so that one travels while the
// next is computed. Accumulation takes buffers of shards.
TEST_F(Zero2Bytes, WholeGradientsOfASectionOrTwo) {
  plan_only();
  for (const int64_t N : {2, 4}) {
    const int64_t P = parameters(L, N);
    const auto more = [&](const std::string& flags) {
      return predicted(run("09_zero2", N, flags), Mem::Workspace) -
             predicted(run("08_zero1", N, flags), Mem::Workspace);
    };
    EXPECT_EQ(more("--ddp overlapped"), 2 * 4 * block(N));
    EXPECT_EQ(more("--ddp bucketed"), 4 * block(N));
    // Four micro-steps: two buffers, of which the second is Workspace.
    const std::string four = fmt::format("--micro-batch {}", 16 / N / 4);
    EXPECT_EQ(more(four), 2 * 4 * block(N) + 4 * P / N - 4 * P);
  }
}

TEST_F(Zero2Bytes, EveryMicroStepSendsItsGradients) {
  for (const int64_t N : {2, 4})
    for (const int64_t GA : {1, 2, 4})
      for (const auto& [precision, bytes] : {std::pair{"fp32", 4}, {"bf16", 2}})
        EXPECT_EQ(traffic("09_zero2", N,
                          fmt::format("--micro-batch {} --precision {}", 16 / N / GA, precision)),
                  (4 * GA + bytes) * (parameters(L, N) / N) * (N - 1))
            << N << " " << GA << " " << precision;
}

// Besides what 09 has: buffers for gathered sections, two or one, or all of them.
TEST_F(Zero3Bytes, RoomsForAFewSections) {
  plan_only();
  const int64_t N = 4;
  const auto more = [&](const std::string& flags, const std::string& own) {
    return predicted(run("10_zero3", N, flags + own), Mem::Workspace) -
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
      EXPECT_EQ(traffic("10_zero3", N, flags), (4 * GA * P + bytes * gathered) / N * others)
          << N << flags;
      // With one buffer, backward gathers the last block, too, and nothing is left for the next.
      EXPECT_EQ(traffic("10_zero3", N, flags + " --prefetch 0"),
                (4 * GA * P + bytes * GA * (P + L * block(N))) / N * others)
          << N << flags;
      // Gathered once: the traffic of stage 2.
      EXPECT_EQ(traffic("10_zero3", N, flags + " --reshard-after-forward 0"),
                (4 * GA * P + bytes * P) / N * others)
          << N << flags;
    }
}

// Recomputation of all but the last block uses the weights that backward uses.
TEST_F(Zero3Bytes, FullRecomputationGathersNothingMore) {
  EXPECT_EQ(traffic("10_zero3", 2, "--recompute full"), traffic("10_zero3", 2, ""));
}

template <class Buffer>
concept Gathered = requires(const Ctx& ctx, CommStream& comm_stream, const ParamLayout& layout,
                            Buffer params) {
  all_gather(ctx, comm_stream, layout, params);
};
static_assert(Gathered<Tensor> && !Gathered<Shard> && !Gathered<Flat>);

template <class Buffer>
concept Reduced = requires(const Ctx& ctx, Zero1& zero1, Buffer grads) {
  zero1.section_done(grads, 0);
  zero1.wait(ctx, grads);
};
static_assert(Reduced<Tensor> && !Reduced<Shard> && !Reduced<Flat>);

template <class Buffer>
concept Owned = std::constructible_from<GatheredParams, Arena&, CommStream&, const ParamLayout&,
                                        const ParamLayout&, Buffer, const Zero3Options&>;
static_assert(Owned<Shard> && !Owned<Tensor> && !Owned<Flat>);

// Gradients of chapter 09 are a shard's, and weights of chapter 10.
template <class Buffer>
concept Finished = requires(const Ctx& ctx, ShardedGrads& grads) {
  { grads.finish(ctx) } -> std::same_as<Buffer>;
};
static_assert(Finished<Shard>);
static_assert(std::same_as<decltype(ShardWeights::compute), Shard>);

}  // namespace
}  // namespace ladder::test
