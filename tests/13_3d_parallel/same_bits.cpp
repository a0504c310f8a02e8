// 13_3d_parallel: what rows of layouts.txt and equal_runs.txt cannot say of whole runs.
#include <set>

#include <fmt/format.h>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

using MeshRuns = Programs;

// All ranks are shares of the batch if nothing else is said.
TEST_F(MeshRuns, WhatIsLeftIsDp) {
  const auto layout = report("13_3d_parallel", "--batch 8 --ranks 8 --pp 2")["layout"];
  EXPECT_EQ(layout["tp"], 1);
  EXPECT_EQ(layout["dp"], 4);
  EXPECT_EQ(layout["pp"], 2);
  EXPECT_EQ(layout["ranks"], 8);
}

// A row of the timeline is found by its name.
TEST_F(MeshRuns, TimelineRowsAreNamedAfterTheirRanks) {
  train("13_3d_parallel",
        "--layers 4 --batch 8 --micro-batch 2 --steps 1 --tp 2 --dp 2 --pp 2 --timeline rows.json");
  std::multiset<std::string> names, wanted;
  const auto file = nlohmann::json::parse(read("rows.json"));
  for (const auto& event : file["traceEvents"])
    if (event["name"] == "thread_name") names.insert(event["args"]["name"].get<std::string>());
  for (int rank = 0; rank < 8; ++rank)
    for (const char* whose : {"", ", beside"}) wanted.insert(fmt::format("rank {}{}", rank, whose));
  EXPECT_EQ(names, wanted);
}

// Stages make different numbers of sums: the last one of a step for some is not for others.
TEST_F(MeshRuns, AFaultStopsNoRun) {
  for (const int nth : {33, 35, 37, 39, 41})
    train("13_3d_parallel",
          fmt::format("--tp 2 --dp 2 --pp 2 --batch 8 --micro-batch 2 --steps 1 --fault "
                      "skip:all_reduce:{}",
                      nth));
}

}  // namespace
}  // namespace ladder::test
