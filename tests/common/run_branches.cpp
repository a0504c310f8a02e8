// A flag that only a branch has is refused by the branch's name.

#include "common/run/command_line.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

/// A program with --batch and chapter 05's --precision, of which 16_fp8 has one value more.
void parse(std::vector<const char*> words) {
  int batch = 1;
  std::string precision = "fp32";
  CommandLine line("a program");
  line.add("--batch", batch, "");
  line.add("--precision", precision, "", {.legal = {"fp32", "bf16"}});
  words.insert(words.begin(), "program");
  line.parse(static_cast<int>(words.size()), words.data());
}

TEST(BranchFlags, AreNamed) {
  const TempDir dir;
  const std::string config = dir / "run.toml";
  write_file(config, "batch = 3\nhead-chunk = 2\n");
  const std::string says = "--head-chunk belongs to 17_head_chunks: run ch17_head_chunks";
  EXPECT_USER_ERROR(parse({"--head-chunk", "2"}), says);
  EXPECT_USER_ERROR(parse({"--head-chunk=2"}), says);
  EXPECT_USER_ERROR(parse({"--nope", "--batch", "2", "--head-chunk"}), says);
  EXPECT_USER_ERROR(parse({"--config", config.c_str()}), says);
  EXPECT_USER_ERROR(parse({"--head-chunks", "2"}), "not expected: 2 --head-chunks");
}

TEST(BranchFlags, AreNamedByTheirValue) {
  parse({"--precision", "bf16"});
  EXPECT_USER_ERROR(parse({"--precision", "fp8"}),
                    "--precision fp8 belongs to 16_fp8: run ch16_fp8");
  EXPECT_USER_ERROR(parse({"--precision", "fp4"}), "fp4 not in {fp32,bf16}");
}

}  // namespace
}  // namespace ladder
