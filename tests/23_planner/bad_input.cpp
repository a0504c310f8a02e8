// What the planner refuses: one line that says what is legal, status 2, nothing overwritten.
#include <string>
#include <utility>

#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class PlannerRefuses : public Refusals {
 protected:
  /// `flags`, and of a small plan those that they leave open.
  static std::string with_defaults(std::string flags) {
    const bool is_decode = flags.starts_with("--decode");
    for (const auto& [flag, value] : {std::pair<std::string, std::string>{"--model", "tiny"},
                                      {"--batch", "8"},
                                      {"--gpus", "8"},
                                      {"--report", "report.json"}})
      if (flags.find(flag + " ") == std::string::npos && (flag != "--report" || !is_decode))
        flags += " " + flag + " " + value;
    return flags;
  }
};
INSTANTIATE_TEST_SUITE_P(Program, PlannerRefuses, ::testing::Values("23_planner"), chapter_name);

TEST_P(PlannerRefuses, BadFlags) {
  write("own.toml", "name = \"x\"\n[peak]\nbf16 = 1\n");
  write("long.toml", "name = \"x\"\n[peak]\nbf16 = 1 # " + std::string(1 << 17, 'x'));
  for (const auto& [flags, says] : refused_rows(LADDER_REFUSED, GetParam()))
    expect_refused(words(with_defaults(flags)), says);
}

}  // namespace
}  // namespace ladder::test
