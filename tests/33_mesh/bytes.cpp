// 33_mesh: bytes by axis, written out. That what is predicted is counted, of each layout: those of
// ../layouts.txt.
#include <string>

#include "tests/33_mesh/long_text.h"
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

constexpr int64_t kLayers = 2, kChannels33 = 128, kHeads = 4, kTokens = 128, kBatch = 8;
constexpr int64_t kPositions = 1024;  ///< rows of the model's table

class MeshBytes33 : public MemoryRuns {
 protected:
  MeshBytes33() { write("text.txt", repeated(read("text.txt"), 6000)); }
  nlohmann::json run(const std::string& mesh) const {
    return report("33_mesh", fmt::format("--model gpt2-124m --vocab 256 --layers {} --channels {} "
                                         "--heads {} --seq-len {} --batch {} --micro-batch 1 "
                                         "--threads 1 --steps 1 {}",
                                         kLayers, kChannels33, kHeads, kTokens, kBatch, mesh));
  }
  static int64_t sent(const nlohmann::json& report, int rank, const std::string& axis) {
    const nlohmann::json& both = report["extra"]["traffic"][static_cast<size_t>(rank)][axis];
    EXPECT_EQ(both["predicted"], both["measured"]) << axis << rank;
    return both["measured"];
  }
};

// tp 2, cp 2, 2 shards, 2 replicas, 2 stages: each axis by itself. One sequence of T C numbers is
// 4 T C bytes; a rank has B / (S R) sequences of T / cp tokens, and one block.
TEST_F(MeshBytes33, OfEachAxis) {
  const auto got = run("--tp 2 --cp 2 --replicas 2 --pp 2 --ranks 32 --context gather");
  const int64_t sequences = kBatch / 4, tokens = kTokens / 2, C = kChannels33;
  const int64_t stream = 4 * sequences * tokens * C;
  // An all-reduce over 2 ranks sends each tensor once: 4 of a block, 1 of the embedding or head.
  EXPECT_EQ(sent(got, 0, "tp"), 5 * stream);
  // Keys and values of the rank's heads: gathered twice in FP32, their gradients scattered.
  EXPECT_EQ(sent(got, 0, "cp"), 3 * 2 * stream / 2);
  // The output of the first stage; the gradient of its input from the second.
  EXPECT_EQ(sent(got, 0, "pp"), stream);
  EXPECT_EQ(sent(got, 31, "pp"), stream);
  // A rank's part of a block, of which matrices are cut in 2, in chunks of 4; each micro-step sums
  // it, and a step gathers it.
  const int64_t cut = (12 * C * C + 7 * C) / 2, whole = 6 * C;
  const int64_t block = (cut + whole + 255) / 256 * 256;
  const int64_t embed = (256 * C / 2 + kPositions * C + 255) / 256 * 256;
  EXPECT_EQ(sent(got, 0, "dp"), 4 * (sequences + 1) * (block + embed) / 4 * 3);
  // Replicas sum the chunk of that, once a step: an all-reduce over 2 ranks sends it once.
  EXPECT_EQ(sent(got, 0, "replicas"), 4 * (block + embed) / 4);
}

// What an axis sends depends on the others only by what a rank has.
TEST_F(MeshBytes33, AnAxisOfOneSendsNothing) {
  const auto got = run("--cp 2 --ranks 4");
  for (const char* axis : {"tp", "replicas", "pp"}) EXPECT_EQ(sent(got, 3, axis), 0) << axis;
  EXPECT_GT(sent(got, 3, "cp"), 0);
  EXPECT_GT(sent(got, 3, "dp"), 0);
}

}  // namespace
}  // namespace ladder::test
