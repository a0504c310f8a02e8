// The groups of chapter 33's mesh, and the shards that flags leave.
#include <vector>

#include <gtest/gtest.h>

#include "chapters/33_mesh/mesh_groups.h"

namespace ladder::test {
namespace {

const MeshShape kCube{{Axis::Tensor, 2},
                      {Axis::Context, 2},
                      {Axis::Data, 2},
                      {Axis::Replica, 2},
                      {Axis::Pipeline, 2}};

// Written out for rank 13 = 1 + 2 (0 + 2 (1 + 2 (1 + 2 0))).
TEST(MeshGroupsTest, WrittenOut) {
  using Ranks = std::vector<int>;
  EXPECT_EQ(ranks_along(kCube, 13, {Axis::Tensor}), (Ranks{12, 13}));
  EXPECT_EQ(ranks_along(kCube, 13, {Axis::Context}), (Ranks{13, 15}));
  EXPECT_EQ(ranks_along(kCube, 13, {Axis::Context, Axis::Data}), (Ranks{9, 11, 13, 15}));
  EXPECT_EQ(ranks_along(kCube, 13, {Axis::Data, Axis::Context}), (Ranks{9, 13, 11, 15}));
  EXPECT_EQ(ranks_along(kCube, 13, {Axis::Replica}), (Ranks{5, 13}));
  EXPECT_EQ(ranks_along(kCube, 13, {Axis::Data, Axis::Replica}), (Ranks{1, 5, 9, 13}));
  EXPECT_EQ(ranks_along(kCube, 13, {Axis::Pipeline}), (Ranks{13, 29}));
  EXPECT_EQ(ranks_along(kCube, 13, model_axes()).front(), 8);
  EXPECT_EQ(std::ssize(ranks_along(kCube, 13, model_axes())), 16);
}

TEST(MeshGroupsTest, AreShown) {
  const std::string text = groups_text({{Axis::Context, 2}, {Axis::Data, 2}});
  EXPECT_NE(text.find("context, shard   0 1 2 3"), std::string::npos) << text;
  EXPECT_NE(text.find("context          0 1 | 2 3"), std::string::npos) << text;
  const std::string many = groups_text({{Axis::Tensor, 8}, {Axis::Data, 128}});
  EXPECT_NE(many.find("0 1 2 3 4 5 6 7 | 8"), std::string::npos) << many;
  for (size_t at = 0, end = 0; end != std::string::npos; at = end + 1) {
    end = many.find('\n', at);
    EXPECT_LT(many.substr(at, end - at).size(), 100U);
  }
}

/// "tp x cp x shards x replicas x pp" of the flags and so many ranks.
std::string shape(int tp, int cp, int replicas, int pp, int ranks) {
  TensorParallelOptions t;
  t.tp = tp;
  ContextOptions c;
  c.cp = cp;
  PipelineOptions p;
  p.pp = pp;
  HsdpOptions h;
  h.replicas = replicas;
  const MeshShape got = FullMeshOptions().shape(t, c, p, h, ranks);
  return fmt::format("{}x{}x{}x{}x{}", got[Axis::Tensor], got[Axis::Context], got[Axis::Data],
                     got[Axis::Replica], got[Axis::Pipeline]);
}

TEST(FullMesh, ShardsAreWhatIsLeft) {
  EXPECT_EQ(shape(0, 1, 1, 0, 1), "1x1x1x1x1");
  EXPECT_EQ(shape(0, 1, 1, 0, 8), "1x1x8x1x1");
  EXPECT_EQ(shape(2, 2, 2, 2, 1), "2x2x1x2x2");
  EXPECT_EQ(shape(2, 2, 2, 2, 32), "2x2x2x2x2");
}

}  // namespace
}  // namespace ladder::test
