// 26_packing: bytes of packed and unpacked rows, and what a run counts.
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class PackingMemory : public MemoryRuns {
 protected:
  static constexpr int64_t T = 16;

  nlohmann::json documents(const std::string& flags) const {
    return report("26_packing", "--layers 2 --steps 2 --documents --end-of-text 32 " + flags);
  }
};

// M rows a bundle, whatever the text holds; a turn has a loss and two borders, a token its
// position.
TEST_F(PackingMemory, Formulas) {
  plan_only();
  const auto plain = report("26_packing", "--layers 2 --batch 4"),
             packed = documents("--batch 4 --row-documents 5"),
             unpacked = documents("--batch 4 --row-documents 5 --unpacked");
  EXPECT_EQ(plain["memory"], report("06_checkpointing", "--layers 2 --batch 4")["memory"]);
  EXPECT_EQ(predicted(packed, Mem::Workspace), predicted(plain, Mem::Workspace));
  EXPECT_EQ(predicted(packed, Mem::Activation) - predicted(plain, Mem::Activation),
            4 * 4 * T + 4 * (8 - 1) * 4 + 8 * 4 * 8);
  const int64_t rows = predicted(packed, Mem::Activation) - 12 * 4 * 8;  // 5 documents, 8 turns
  EXPECT_EQ(predicted(unpacked, Mem::Activation), 5 * rows + 12 * 4 * 8);
}

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
