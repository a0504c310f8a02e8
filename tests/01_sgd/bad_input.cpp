// Bad input that every chapter refuses: files, sizes, flags.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadRun : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadRun, ::testing::ValuesIn(some_chapters_from("01_sgd")),
                         chapter_name);

TEST_P(BadRun, Text) {
  write("empty.txt", "");
  write("short.txt", std::string(169, 'x'));  // a tenth of it is one token too short
  std::filesystem::create_directory(path("folder"));
  expect_refused({{"--data no_such.txt", "no_such.txt: no such file"},
                  {"--data empty.txt", "0 bytes are too short for --seq-len 16"},
                  {"--data short.txt",
                   "169 bytes are too short for --seq-len 16; it takes at "
                   "least 170"},
                  {"--data folder", "folder"}});
  expect_refused({"--model", "nano"}, "--data is required");
  expect_refused({"--data", ""}, "--data needs a value");
  expect_refused({"--data", "two\nlines"}, "two\\x0alines: no such file");
}

// A message must not flood a screen, nor change it by control characters.
TEST_P(BadRun, QuotesWhatAScreenCanTake) {
  const std::string far(5000, 'x');
  for (const auto& args :
       std::vector<std::vector<std::string>>{{"--data", far},
                                             {"--data", "text.txt", "--model", far},
                                             {"--data", "text.txt", "--trace", far},
                                             {far}}) {
    expect_refused(args, "xxx ... xxx");
    EXPECT_LT(run(GetParam(), args).err.size(), 500u) << args[0].substr(0, 10);
  }
  expect_refused({"--data",
                  "\xc2\x9b"
                  "2J\x7f\x9b"},
                 "--data \\xc2\\x9b2J\\x7f\\x9b: no such");
}

TEST_P(BadRun, SaveEveryNeedsSave) {
  expect_refused({"--data", "text.txt", "--save-every", "1"}, "--save-every needs --save");
}

TEST_P(BadRun, Outputs) {
  std::filesystem::create_directory(path("folder"));
  write("file", "in the way\n");
  write("a.partial", read("text.txt"));
  write("text.idx", "of the text\n");
  expect_refused(
      {{"--trace no_such/trace.jsonl", "--trace"},
       {"--report no_such/report.json", "--report"},
       {"--timeline no_such/timeline.json", "--timeline"},
       {"--trace folder", "there is something that is not a file"},
       {"--report folder", "there is something that is not a file"},
       {"--save file", "--save file: cannot be a directory"},
       {"--save file/below", "--save file/below: cannot be a directory"},
       {"--trace text.txt", "would write in --data text.txt"},
       {"--trace folder/../text.txt", "would write in --data text.txt"},
       {"--trace ./report.json", "--report report.json: would write in --trace ./report.json"},
       {"--data a.partial --trace a", "--trace a: would write in --data a.partial"},
       {"--data a.partial --report a", "--report a: would write in --data a.partial"},
       {"--trace b --report b.partial", "--report b.partial: would write in --trace"},
       {"--report b --trace b.partial", "--report b: would write in --trace b.partial"},
       {"--timeline text.idx", "--timeline text.idx: would write in --data text.idx"}});
}

}  // namespace
}  // namespace ladder::test
