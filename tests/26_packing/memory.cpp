// 26_packing: what a run counts. Bytes: tests/golden/bytes.json.
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class PackingMemory : public MemoryRuns {
 protected:
  nlohmann::json documents(const std::string& flags) const {
    return report("26_packing", "--layers 2 --steps 2 --documents --end-of-text 32 " + flags);
  }
};

// "the a light ..." in words of 2 to 6 bytes: by hand for the first four.
TEST_F(PackingMemory, Counts) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "abcdefghijklmnopqrstu a abc abcdefg ";
  write("text.txt", text);
  // 4 words have 21, 1, 3 and 7 positions: 16 and 5, 1, 3, 7. First fit: 16 | 7 5 3 1.
  const auto got = documents("--batch 2 --pack-window 4")["extra"]["packing"];
  EXPECT_EQ(got["rows"], 4);
  EXPECT_EQ(got["pieces"], 2 * 5);
  EXPECT_EQ(got["trained"], 2 * 32);
  EXPECT_EQ(got["padded"], 0);
  EXPECT_EQ(got["cut"], 2 * 5);
  EXPECT_EQ(got["pairs"], 2 * (136 + 28 + 15 + 6 + 1));
  EXPECT_EQ(got["pairs_of_rows"], 4 * 136);
  const auto alone = documents("--batch 2 --pack-window 4 --unpacked")["extra"]["packing"];
  EXPECT_EQ(alone["rows"], 2 * 5);
  EXPECT_EQ(alone["trained"], 2 * 32);
  EXPECT_EQ(alone["padded"], 2 * (5 * 16 - 32));
}

}  // namespace
}  // namespace ladder::test
