// 13_3d_parallel: bytes in memory and on the wire of every rank, written out.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "tests/common/memory.h"

namespace ladder::test {
namespace {

/// Sizes of a mesh, and where a rank stands.
struct Cube {
  int64_t tp, dp, pp;
  int64_t ranks() const { return tp * dp * pp; }
  int64_t stage(int64_t rank) const { return rank / (tp * dp); }
  std::string flags() const { return fmt::format("--tp {} --dp {} --pp {} ", tp, dp, pp); }
};

class MeshBytes : public MemoryRuns {
 protected:
  // nano: micro-batches of b sequences.
  static constexpr int64_t L = 8, C = kChannels, T = 16, Vp = 256, NH = 8, B = 16, b = 2;

  nlohmann::json run(const Cube& mesh, const std::string& flags) const {
    return report("13_3d_parallel", mesh.flags() + "--batch 16 --micro-batch 2 --steps 2 " + flags);
  }
  static int64_t up(int64_t n, int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
  }
  /// Elements that a rank of stage s has. Whole on each tensor rank are the positions, norms and
  /// biases behind a sum; each section falls into dp chunks of whole 64s.
  static int64_t parameters(const Cube& m, int64_t s) {
    const int64_t biases = up(3 * C / m.tp, 64) + 4 * C / m.tp;
    const int64_t block = up(12 * C * C / m.tp + biases + 6 * C, 64 * m.dp);
    const int64_t embed = up(Vp * C / m.tp + T * C, 64 * m.dp);
    const int64_t head = up(2 * C + Vp * C / m.tp, 64 * m.dp);
    return L / m.pp * block + (s == 0 ? embed : 0) + (s + 1 == m.pp ? head : 0);
  }
  static int64_t traffic(const nlohmann::json& report, size_t rank, const char* axis) {
    return report.at("extra").at("traffic").at(rank).at(axis).at("measured");
  }

  /// Bytes that each rank has sent in the whole run, by operation.
  static std::vector<std::map<std::string, int64_t>> on_the_wire(const nlohmann::json& report) {
    std::vector<std::map<std::string, int64_t>> ranks;
    for (const auto& of_rank : report.at("comm")) {
      ranks.emplace_back();
      for (const auto& [operation, count] : of_rank.items())
        if (operation != "rank" && count.at("wire_bytes") != 0)
          ranks.back()[operation] = count.at("wire_bytes");
    }
    return ranks;
  }

  const std::vector<Cube> kCubes = {{2, 2, 2}, {4, 2, 1}, {1, 4, 2}, {2, 1, 4}};
};

// What is reported is the last step: one that overflows and ends before updated weights are
// gathered; or there was none.
TEST_F(MeshBytes, AsPredictedOfTheLastStep) {
  const Cube mesh{2, 2, 2};
  must_end_with(3);
  const auto overflow = run(mesh, "--precision fp16 --loss-scale 16777216")["extra"];
  must_end_with(0);
  EXPECT_EQ(overflow["loss_scale"]["skipped"], 2);
  run(mesh, "--save saved");
  const auto none = run(mesh, "--load saved")["extra"];
  EXPECT_FALSE(none.contains("pipeline"));
  for (int64_t r = 0; r < mesh.ranks(); ++r)
    for (const char* axis : {"tp", "dp", "pp"}) {
      const auto of = [&](const nlohmann::json& extra) { return extra["traffic"][r][axis]; };
      EXPECT_EQ(of(none)["predicted"], 0) << r << axis;
      EXPECT_EQ(of(none)["measured"], 0) << r << axis;
      const bool skipped = axis == std::string("dp");
      EXPECT_EQ(of(overflow)["predicted"], skipped ? nlohmann::json() : of(overflow)["measured"])
          << r << axis;
    }
}

TEST_F(MeshBytes, WeightsByTensorRankAndStageStatesByShareToo) {
  for (const Cube& mesh : kCubes) {
    const auto fp32 = run(mesh, ""), bf16 = run(mesh, "--precision bf16");
    for (int64_t r = 0; r < mesh.ranks(); ++r) {
      const int64_t P = parameters(mesh, mesh.stage(r));
      EXPECT_EQ(measured(fp32, Mem::Param, r), 4 * P) << mesh.flags() << r;
      EXPECT_EQ(measured(fp32, Mem::Grad, r), 4 * P) << mesh.flags() << r;
      EXPECT_EQ(measured(fp32, Mem::Optim, r), 8 * P / mesh.dp) << mesh.flags() << r;
      EXPECT_EQ(measured(bf16, Mem::Param, r), 2 * P) << mesh.flags() << r;
      EXPECT_EQ(measured(bf16, Mem::Master, r), 4 * P / mesh.dp) << mesh.flags() << r;
      EXPECT_EQ(measured(bf16, Mem::Optim, r), 8 * P / mesh.dp) << mesh.flags() << r;
    }
  }
}

// 8 P / (tp dp pp) in the mean, but for what tensor ranks all have, and padding.
TEST_F(MeshBytes, AllRanksTogetherHaveTheStatesOnce) {
  for (const Cube& mesh : kCubes) {
    const auto got = run(mesh, "");
    const int64_t live = got["model"]["parameters"];
    int64_t all = 0;
    for (int64_t r = 0; r < mesh.ranks(); ++r) all += measured(got, Mem::Optim, r);
    EXPECT_GE(all, 8 * live);
    const int64_t copies = (mesh.tp - 1) * (6 * C * L + 2 * C + T * C + 64 * L);
    EXPECT_LE(all, 8 * (live + copies + (L + 2) * 64 * mesh.dp * mesh.tp)) << mesh.flags();
  }
}

// Of 1f1b, stage s has pp - s micro-batches in flight; of each a block keeps 4 C + 12 C / tp.
TEST_F(MeshBytes, ActivationsOfWhatIsInFlight) {
  for (const Cube& mesh : kCubes) {
    const auto got = run(mesh, "");
    const int64_t share = B / mesh.dp, m = share / b;
    for (int64_t r = 0; r < mesh.ranks(); ++r) {
      const int64_t s = mesh.stage(r), n = std::min(mesh.pp - s, m);
      const bool last = s + 1 == mesh.pp;
      const int64_t blocks = L / mesh.pp * (4 * C + 12 * C / mesh.tp + 4 + NH / mesh.tp);
      const int64_t norm = last ? 2 * C + 2 : 0;
      // An output that is only sent on, or logits; and three sums of a softmax.
      const int64_t shared = (last ? Vp / mesh.tp : C) + 3;
      EXPECT_EQ(measured(got, Mem::Activation, r),
                4 * b * T * (n * (blocks + norm) + shared) + 8 * share * T + 4 * B)
          << mesh.flags() << r;
    }
  }
}

// A sequence has 16 chunks whatever its length: this one is shorter, so that no formula takes
// positions for chunks.
TEST_F(MeshBytes, OnTheWireByAxis) {
  constexpr int64_t kChunks = 16, kShort = 8;
  for (const Cube& mesh : kCubes)
    for (const bool sequences : {false, true}) {
      const auto got =
          run(mesh, fmt::format("--seq-len {} {}", kShort, sequences ? "--sequence-parallel" : ""));
      const int64_t tp = mesh.tp, dp = mesh.dp, pp = mesh.pp, share = B / dp;
      for (int64_t r = 0; r < mesh.ranks(); ++r) {
        const int64_t s = mesh.stage(r), Lp = L / pp;
        const int64_t ends = (s == 0 ? 1 : 0) + (s + 1 == pp ? 1 : 0);
        const int64_t neighbors = 2 - ends, norms = 2 * Lp + (s + 1 == pp ? 1 : 0);
        const int64_t stream = 4 * share * kShort * C;  // bytes of all sequences of a share
        // Half all-reduces: 4 of a block are 8. Under sequence parallelism weight gradients gather
        // once more what both parts have read, and the gradients of what they made: 12.
        const bool gathers = sequences && tp > 1;
        const int64_t halves = (gathers ? 12 : 8) * Lp + 2 * ends;
        // Of each norm they gather the sums of a sequence's chunks, for the gain and for the bias.
        const int64_t sums = gathers ? norms * 2 * 4 * share * kChunks * C : 0;
        EXPECT_EQ(traffic(got, r, "tp"), (tp - 1) * (halves * stream + sums) / tp)
            << mesh.flags() << r;
        EXPECT_EQ(traffic(got, r, "dp"), (4 + 4) * (parameters(mesh, s) / dp) * (dp - 1))
            << mesh.flags() << r;
        EXPECT_EQ(traffic(got, r, "pp"), neighbors * stream / (gathers ? tp : 1))
            << mesh.flags() << r;
      }
    }
}

// All that travels counts, also where no axis predicts it: targets, losses, sums of a softmax,
// what is validated.
TEST_F(MeshBytes, OneAxisSendsWhatItsChapterSends) {
  for (const auto& [chapter, theirs, ours] : {std::tuple{"08_zero1", "--ranks 2", "--dp 2"},
                                              {"11_tensor_parallel", "--tp 2", "--tp 2"},
                                              {"12_pipeline_parallel", "--pp 2", "--pp 2"}}) {
    const std::string flags = "--layers 2 --batch 4 --micro-batch 2 --steps 1 --eval-every 1 ";
    EXPECT_EQ(on_the_wire(report("13_3d_parallel", flags + ours)),
              on_the_wire(report(chapter, flags + theirs)))
        << chapter;
  }
}

// What is asked of a rank that sends more than others is not told of all.
TEST_F(MeshBytes, OfATreeIsNotPredicted) {
  const auto got = run({1, 2, 2}, "--reduction tree");
  EXPECT_TRUE(got["extra"]["traffic"][0]["dp"]["predicted"].is_null());
  EXPECT_TRUE(got["extra"]["traffic"][0]["pp"]["predicted"].is_number());
}

}  // namespace
}  // namespace ladder::test
