// 27_data_order: bytes of a rank's share, packed and unpacked, and what ranks report together.
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class DataOrderMemory : public MemoryRuns {
 protected:
  nlohmann::json run(const std::string& flags) const {
    return report("27_data_order",
                  "--layers 2 --steps 2 --batch 8 --documents --end-of-text 10 "
                  "--sources text.txt:3,text.txt:1 " +
                      flags);
  }
};

TEST_F(DataOrderMemory, CountsAreThoseOfAllRanks) {
  const auto one = run("")["extra"], four = run("--ranks 4")["extra"];
  EXPECT_EQ(one["packing"], four["packing"]);
  EXPECT_EQ(one["sources"], four["sources"]);
  EXPECT_EQ(
      one["sources"][0]["targets"].get<int64_t>() + one["sources"][1]["targets"].get<int64_t>(),
      one["packing"]["trained"]);
}

}  // namespace
}  // namespace ladder::test
