// Progress: a bar that stays on its line.
#include <cmath>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <unistd.h>

#include "common/run/progress.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

TEST(Progress, ATerminalHasABarUnlessItIsOfMpirun) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_EQ(::grantpt(terminal) + ::unlockpt(terminal), 0);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(::ptsname(terminal), "w"),
                                                            std::fclose);
  EXPECT_EQ(Progress::style_for(out.get(), false), Progress::Style::Bar);
  ::setenv("PMIX_RANK", "0", /*overwrite=*/1);
  EXPECT_EQ(Progress::style_for(out.get(), false), Progress::Style::Lines);
  ::unsetenv("PMIX_RANK");
  ::close(terminal);
}

TEST(Progress, BarKeepsToOneLine) {
  const TempDir dir;
  const std::string path = dir / "screen";
  {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(path.c_str(), "w"),
                                                              std::fclose);
    EXPECT_EQ(Progress::style_for(out.get(), false), Progress::Style::Lines);
    EXPECT_EQ(Progress::style_for(out.get(), true), Progress::Style::Quiet);
    Progress progress(out.get(), Progress::Style::Bar, 2);
    progress.show({.done = 1, .loss = std::nan(""), .tokens_per_second = 5, .seconds_left = 61});
    progress.line("note");
    progress.show({.done = 2, .loss = 1, .tokens_per_second = 5, .seconds_left = 0});
    progress.end();
    progress.end();
  }
  EXPECT_EQ(read_file(path),
            "\r\x1b[K[############            ] step 1/2  loss nan  5 tokens/s  1:01 left"
            "\r\x1b[Knote\n"
            "[############            ] step 1/2  loss nan  5 tokens/s  1:01 left"
            "\r\x1b[K[########################] step 2/2  loss 1.0000  5 tokens/s  0:00 left\n");
}

}  // namespace
}  // namespace ladder
