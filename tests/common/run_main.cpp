// run_main(): the exit status and the line of a program, by how its body ended.
#include "common/run/run_main.h"

#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/error.h"
#include "common/run/ending.h"
#include "kernels/check.h"

namespace ladder {
namespace {

TEST(RunMain, StatusAndLine) {
  const auto run = [](auto body) {
    testing::internal::CaptureStderr();
    const int status = run_main(body);
    return std::pair(status, testing::internal::GetCapturedStderr());
  };
  using Result = std::pair<int, std::string>;
  EXPECT_EQ(run([] {}), Result(0, ""));
  EXPECT_EQ(run([] { throw HelpPrinted{}; }), Result(0, ""));
  EXPECT_EQ(run([] { throw UserError("bad {}", 1); }), Result(2, "error: bad 1\n"));
  for (const auto& [status, line] :
       {run([] { throw OutOfMemory("no memory for x"); }), run([] { throw std::bad_alloc(); })}) {
    EXPECT_EQ(status, 2);
    EXPECT_TRUE(line.starts_with("error: no memory")) << line;
    EXPECT_NE(line.find("a smaller --batch"), std::string::npos) << line;
  }
  const auto too_long = std::make_error_code(std::errc::filename_too_long);
  EXPECT_EQ(run([&] { throw std::filesystem::filesystem_error("status", "a/b", too_long); }),
            Result(2, "error: a/b: File name too long\n"));
  const auto no_thread = std::make_error_code(std::errc::resource_unavailable_try_again);
  EXPECT_EQ(run([&] { throw std::system_error(no_thread); }),
            Result(2,
                   "error: the system starts no further thread; fewer --threads or --ranks take "
                   "less\n"));
  EXPECT_EQ(run([] { throw std::runtime_error("a\nb"); }), Result(1, "internal error: a\\x0ab\n"));
  EXPECT_EQ(run([] { throw 3; }).first, 1);
}

// A few lines stay in the buffer of stdout until the end. Many lines do not fit there.
TEST(RunMain, TellsThatOutputIsLost) {
  for (const int lines : {1, 10'000}) {
    const int full = ::open("/dev/full", O_WRONLY), kept = ::dup(STDOUT_FILENO);
    ASSERT_GE(full, 0);
    std::fflush(stdout);
    ::dup2(full, STDOUT_FILENO);
    testing::internal::CaptureStderr();
    const int status = run_main([&] {
      for (int i = 0; i < lines; ++i) fmt::print("line {}\n", i);
    });
    std::clearerr(stdout);
    ::dup2(kept, STDOUT_FILENO);
    ::close(kept);
    ::close(full);
    EXPECT_EQ(status, 3) << lines;
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "error: standard output cannot be written: is its disk full, or its reader gone?\n");
  }
}

// `| head -1`. As on a full disk, a run still comes to its end.
TEST(RunMain, TellsThatNobodyReadsTheOutput) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const int kept = ::dup(STDOUT_FILENO);
  std::fflush(stdout);
  ::dup2(ends[1], STDOUT_FILENO);
  for (const int end : ends) ::close(end);
  testing::internal::CaptureStderr();
  const int status = run_main([] { fmt::print("line\n"); });
  std::clearerr(stdout);
  ::dup2(kept, STDOUT_FILENO);
  ::close(kept);
  EXPECT_EQ(status, 3);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "error: standard output cannot be written: is its disk full, or its reader gone?\n");
}

}  // namespace
}  // namespace ladder
