// Options: what is recorded of them, numbers, sizes, and files that are refused. Other refusals:
// ../01_sgd/refused.txt.

#include <algorithm>

#include <sys/stat.h>

#include "common/run/command_line.h"
#include "common/run/options.h"
#include "common/run/run_main.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

struct Outcome {
  int status;
  std::string out, err;
  RunOptions options;
};

class Options : public testing::Test {
 protected:
  Options() { write_file(text_, "text"); }

  /// A program that parses and checks its options, with --data unless it is among `args`.
  Outcome run(std::vector<std::string> args, bool data = true) {
    if (data) args.insert(args.begin(), {"--data", text_});
    std::vector<const char*> argv = {"program"};
    for (const std::string& arg : args) argv.push_back(arg.c_str());
    Outcome outcome{};
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    outcome.status = run_main([&] {
      CommandLine line("a program");
      outcome.options.add_to(line);
      line.parse(static_cast<int>(argv.size()), argv.data());
      outcome.options.check();
      outcome.options.refuse_ranks();
    });
    outcome.out = testing::internal::GetCapturedStdout();
    outcome.err = testing::internal::GetCapturedStderr();
    return outcome;
  }

  void expect_refused(const std::vector<std::string>& args, const std::string& part,
                      bool data = true) {
    const Outcome o = run(args, data);
    EXPECT_EQ(o.status, 2) << o.err;
    EXPECT_EQ(o.out, "");
    EXPECT_TRUE(o.err.starts_with("error: ")) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_NE(o.err.find(part), std::string::npos) << o.err;
  }

  TempDir dir_;
  std::string text_ = dir_ / "text";
};

// Ranks compare it.
TEST_F(Options, AllAreRecordedWithTheirValues) {
  const Outcome o = run({"--lr", "0.5", "--layers", "3", "--steps", "010"});
  EXPECT_EQ(o.options.flags.at(0).flag, "the program");
  EXPECT_EQ(o.options.flags.at(0).value, "a program");
  std::map<std::string, std::string> values;
  for (const FlagValue& flag : o.options.flags) values[flag.flag] = flag.value;
  for (const auto& [flag, value] : std::map<std::string, std::string>{{"--lr", "0.5"},
                                                                      {"--layers", "3"},
                                                                      {"--heads", ""},
                                                                      {"--steps", "10"},
                                                                      {"--quiet", "false"},
                                                                      {"--tokens", "auto"},
                                                                      {"--trace", ""},
                                                                      {"--data", text_}})
    EXPECT_EQ(values.at(flag), value) << flag;
}

TEST_F(Options, NumbersAreDecimal) {
  const Outcome o = run({"--steps", "010", "--seed", "18446744073709551615", "--threads", "002"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.options.steps, 10);
  EXPECT_EQ(o.options.seed, UINT64_MAX);
  EXPECT_EQ(o.options.threads, 2);
}

int64_t size_of(const char* text) {
  int64_t bytes = 0;
  CommandLine line("a program");
  line.group("Files");
  line.add("--limit", bytes, "", {.bytes = true});
  const char* const words[] = {"program", "--limit", text};
  line.parse(3, words);
  return bytes;
}

TEST(Sizes, AreDecimalWithAUnit) {
  EXPECT_EQ(size_of("1000"), 1000);
  EXPECT_EQ(size_of("010MB"), 10 << 20);
  for (const char* none : {"MB", "-5", "1.5GB", "5XB", "8EB", "9223372036854775808"})
    EXPECT_USER_ERROR(size_of(none), "--limit: ");
}

TEST_F(Options, RefusesSizesThatAreTooLargeTogether) {
  const std::vector<std::string> largest = {"--batch", "1048576",    "--layers",
                                            "4096",    "--channels", "131072"};
  expect_refused(largest, "--batch 1048576 is too large with 4096 layers");
  EXPECT_EQ(run({largest[0], largest[1]}).status, 0);
  EXPECT_EQ(run({"--model", "gpt3-175b", "--batch", "1562"}).status, 0);
}

TEST_F(Options, RefusesBadFiles) {
  expect_refused({"--data", dir_.path()}, ": cannot be read: not a regular file", false);
  ::mkfifo((dir_ / "pipe").c_str(), 0600);
  expect_refused({"--load", dir_ / "pipe"}, "/pipe: neither a file nor a directory");
  std::filesystem::create_directory(dir_ / "pipes");
  ::mkfifo((dir_ / "pipes/checkpoint.json").c_str(), 0600);
  expect_refused({"--load", dir_ / "pipes"}, "checkpoint.json: cannot be read");
  EXPECT_EQ(read_file(text_), "text");
}

TEST_F(Options, HelpIsNoError) {
  const Outcome o = run({"--help"}, false);
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.err, "");
  for (const char* part : {"Sampling:", "one of ref, cpu"})
    EXPECT_NE(o.out.find(part), std::string::npos) << part << " in\n" << o.out;
}

}  // namespace
}  // namespace ladder
