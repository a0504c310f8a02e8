// --plan-only: a row for each --recompute policy that saves something.
#include <algorithm>
#include <limits>
#include <sstream>

#include "chapters/06_checkpointing/recompute.h"
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class Policies : public MemoryRuns {};

// Of 7 blocks every:2 computes six again, as full and every:3 do, and takes more memory than full.
TEST_F(Policies, RowsAreWhatRunsTake) {
  const std::string flags = "--layers 7 --channels 64 --batch 4 --micro-batch 2 ";
  const Ended plan = run("06_checkpointing", small_run(flags + "--recompute every:2 --plan-only"));
  ASSERT_EQ(plan.status, 0) << plan.err;
  std::istringstream lines(plan.out);
  std::vector<std::string> names;
  int64_t more = std::numeric_limits<int64_t>::max(), fewer = -1;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t bytes = 0, flops = 0;
    if (!(words >> name >> bytes >> flops)) continue;
    names.push_back(name);
    EXPECT_LT(bytes, more) << name;
    EXPECT_GE(flops, fewer) << name;
    more = bytes;
    fewer = flops;
    const auto got = report("06_checkpointing", flags + "--steps 1 --recompute " + name);
    int64_t sum = 0;
    for (int mem = 0; mem < kMemCount; ++mem) sum += measured(got, static_cast<Mem>(mem));
    EXPECT_EQ(bytes, sum) << name;
    EXPECT_EQ(flops, got["extra"]["recompute"]["flops_twice"]["measured"]) << name;
  }
  EXPECT_EQ(names.front(), "none");
  EXPECT_EQ(names.back(), "full");
  EXPECT_EQ(std::ranges::count(names, "every:2"), 0);
  EXPECT_EQ(std::ranges::count(names, "every:4"), 1);
}

}  // namespace
}  // namespace ladder::test
