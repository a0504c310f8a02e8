// 30_hsdp: the report names the mesh. Bytes: tests/golden/bytes.json.
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

using HsdpReport = MemoryRuns;

TEST_F(HsdpReport, NamesItsMesh) {
  const auto layout =
      report("30_hsdp", "--layers 3 --steps 1 --batch 16 --ranks 8 --replicas 2")["layout"];
  EXPECT_EQ(layout["ranks"], 8);
  EXPECT_EQ(layout["dp"], 4);
  EXPECT_EQ(layout["replicas"], 2);
}

}  // namespace
}  // namespace ladder::test
