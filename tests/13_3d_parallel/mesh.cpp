// The mesh of chapter 13: where ranks stand, and whom they stand with.
#include "common/comm/mesh.h"

#include <gtest/gtest.h>

#include "chapters/13_3d_parallel/mesh_options.h"
#include "common/comm/run_ranks.h"

namespace ladder::test {
namespace {

MeshShape mesh_of(int tp, int dp, int pp) {
  return {{Axis::Tensor, tp}, {Axis::Data, dp}, {Axis::Pipeline, pp}};
}
MeshCoordinate coordinate_of(int t, int d, int s) {
  return {{Axis::Tensor, t}, {Axis::Data, d}, {Axis::Pipeline, s}};
}

// Written out: tp fastest, then dp, then pp.
TEST(MeshCoordinates, TensorRanksAreNeighbors) {
  const MeshShape mesh = mesh_of(2, 3, 4);
  EXPECT_EQ(mesh.size(), 24);
  EXPECT_EQ(mesh.rank(coordinate_of(1, 0, 0)), 1);
  EXPECT_EQ(mesh.rank(coordinate_of(0, 1, 0)), 2);
  EXPECT_EQ(mesh.rank(coordinate_of(0, 0, 1)), 6);
  EXPECT_EQ(mesh.rank(coordinate_of(1, 2, 3)), 23);
}

/// The numbers of the ranks in `group`, in its order.
std::vector<int> members(Comm& group, int rank) {
  std::vector<int32_t> all(static_cast<size_t>(group.size()));
  int32_t own = rank;
  group.all_gather({.ptr = all.data(), .dtype = Dtype::I32, .shape = {std::ssize(all)}},
                   {.ptr = &own, .dtype = Dtype::I32, .shape = {1}});
  return {all.begin(), all.end()};
}

TEST(MeshGroups, WrittenOut) {
  run_threads(8, [](Comm& comm) {
    const Mesh mesh(comm, mesh_of(2, 2, 2));
    PerAxis<std::vector<int>> ranks;
    for (const Axis axis : kAxes) ranks[axis] = members(mesh[axis], comm.rank());
    if (comm.rank() != 5) return;
    EXPECT_EQ(ranks[Axis::Tensor], (std::vector{4, 5}));
    EXPECT_EQ(ranks[Axis::Data], (std::vector{5, 7}));
    EXPECT_EQ(ranks[Axis::Pipeline], (std::vector{1, 5}));
  });
}

/// "2x2x2" of the flags --tp --dp --pp and so many ranks.
std::string shape(int tp, int dp, int pp, int ranks) {
  MeshOptions mesh;
  mesh.dp = dp;
  TensorParallelOptions t;
  t.tp = tp;
  PipelineOptions p;
  p.pp = pp;
  const MeshShape got = mesh.shape(t, p, ranks);
  return fmt::format("{}x{}x{}", got[Axis::Tensor], got[Axis::Data], got[Axis::Pipeline]);
}

TEST(MeshOptionsTest, WhatIsNotGivenIsOneAndDpTheRest) {
  EXPECT_EQ(shape(0, 0, 0, 1), "1x1x1");
  EXPECT_EQ(shape(0, 0, 0, 8), "1x8x1");
  EXPECT_EQ(shape(2, 0, 2, 8), "2x2x2");
  EXPECT_EQ(shape(2, 0, 4, 8), "2x1x4");
  EXPECT_EQ(shape(8, 8, 16, 1024), "8x8x16");
  EXPECT_EQ(shape(8, 0, 16, 1024), "8x8x16");
  // No --ranks: as many as the axes ask for.
  EXPECT_EQ(shape(2, 3, 4, 1), "2x3x4");
  EXPECT_EQ(shape(2, 0, 0, 1), "2x1x1");
}

}  // namespace
}  // namespace ladder::test
