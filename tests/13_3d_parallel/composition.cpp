// 13_3d_parallel with what came before: optimizers, clipping, precisions, ramps, samples.
#include <set>
#include <string>

#include <fmt/format.h>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

/// Of four layers: on two stages two parts each.
class MeshWith : public SameTrace {
 protected:
  Trace one(const std::string& flags) const {
    return trace("06_checkpointing", "--layers 4 " + flags);
  }
  Trace mesh(const std::string& flags) const {
    return trace("13_3d_parallel", "--layers 4 " + flags);
  }
};

// Tensor ranks round their part of a sum: another run than that of one rank, close by; but the same
// whatever dp and pp.
TEST_F(MeshWith, NarrowPrecisionWithTensorRanksStaysClose) {
  for (const std::string flags :
       {"--precision bf16 --batch 8 ", "--precision fp16 --loss-scale 1024 --batch 8 "}) {
    const Trace alone = one(flags), shared = mesh(flags + "--tp 2");
    ASSERT_TRUE(is_whole(shared)) << flags;
    for (size_t i = 0; i < alone.steps.size(); ++i)
      EXPECT_NEAR(std::stod(alone.steps[i].loss), std::stod(shared.steps[i].loss), 0.02) << flags;
    for (const std::string ours :
         {"--tp 2 --dp 2 --pp 2 --micro-batch 1", "--tp 2 --dp 4 --sequence-parallel",
          "--tp 2 --pp 4 --pipeline zb-h1 --micro-batch 2"})
      EXPECT_TRUE(same_trace(shared, mesh(flags + ours))) << flags << ours;
  }
}

// A row of the timeline is found by its name.
TEST_F(MeshWith, TimelineRowsAreNamedAfterTheirRanks) {
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

}  // namespace
}  // namespace ladder::test
