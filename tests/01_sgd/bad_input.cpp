// Bad input that every chapter refuses: files, sizes, flags.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadRun : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadRun, ::testing::ValuesIn(some_chapters_from("01_sgd")),
                         chapter_name);

class OneRank : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, OneRank, ::testing::ValuesIn(chapters_of_one_rank()),
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

// A message is for a screen, and for a reader.
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
  expect_refused({"--data", "\xc3\xa4\xe2\x80\xae"}, "--data \xc3\xa4\\xe2\\x80\\xae: no such");
}

TEST_P(BadRun, Config) {
  write("unknown.toml", "no-such-flag = 3\n");
  write("chapter.toml", "eval-every = 'often'\n");
  write("noise.toml", "\x01\x02 = = [[\n");
  write("refused.toml", "heads = 7\n");
  write("mark.toml", "\xEF\xBB\xBFsteps = 3\n");
  expect_refused({{"--config no_such.toml", "no_such.toml"},
                  {"--config .", "--config"},
                  {"--config unknown.toml", "no-such-flag"},
                  {"--config chapter.toml", "--eval-every"},
                  {"--config noise.toml", "--config"},
                  {"--config mark.toml", "mark.toml: begins with a byte order mark"},
                  {"--config refused.toml", "--heads 7 must divide --channels 128"}});
}

TEST_P(BadRun, SaveEveryNeedsSave) {
  expect_refused({"--data", "text.txt", "--save-every", "1"}, "--save-every needs --save");
}

TEST_P(OneRank, IsAllThatTheyKnow) {
  expect_refused(BadInput{"--ranks 2", "--ranks must be 1, not 2"});
}

TEST_P(BadRun, Outputs) {
  std::filesystem::create_directory(path("folder"));
  write("file", "in the way\n");
  write("run.toml", "seed = 2\n");
  expect_refused(
      {{"--trace no_such/trace.jsonl", "--trace"},
       {"--report no_such/report.json", "--report"},
       {"--timeline no_such/timeline.json", "--timeline"},
       {"--trace folder", "there is something that is not a file"},
       {"--report folder", "there is something that is not a file"},
       {"--save file", "--save file: cannot be a directory"},
       {"--save file/below", "--save file/below: cannot be a directory"},
       {"--trace text.txt", "text.txt, which belongs to --data text.txt"},
       {"--trace folder/../text.txt", "text.txt, which belongs to --data text.txt"},
       {"--config run.toml --report run.toml", "run.toml, which belongs to --config run.toml"},
       {"--trace ./report.json",
        "--trace ./report.json and --report report.json: both would write"},
       {"--trace report.json", "--trace report.json and --report report.json: both would write"}});
}

// An output has a second name while it grows, and a file may have two names.
TEST_P(BadRun, OutputsThatAreInputs) {
  namespace fs = std::filesystem;
  write("run.partial", read("text.txt"));
  write("run.toml", "seed = 2\n");
  fs::create_hard_link(path("text.txt"), path("second"));
  fs::create_symlink("text.txt", path("link"));
  fs::create_hard_link(path("text.txt"), path("grows.partial"));
  train(GetParam(), "--steps 1 --layers 1 --save old");
  fs::create_directories(path("old/below"));
  for (const auto& entry : fs::recursive_directory_iterator(path("old")))
    if (entry.path().filename() == "checkpoint.json")
      fs::create_hard_link(entry.path(), path("state"));
  const std::string text = "belongs to --data ";
  expect_refused({{"--trace run --data run.partial", "run.partial, which " + text + "run.partial"},
                  {"--report run --data run.partial", text},
                  {"--timeline run --data run.partial", text},
                  {"--config run.toml --report second", text + "text.txt"},
                  {"--trace link", text + "text.txt"},
                  {"--trace grows", "grows.partial, which " + text + "text.txt"},
                  {"--trace second --report text.txt", "both would write"},
                  {"--trace x --report x.partial", "both would write"},
                  {"--trace state --load old", "belongs to --load old"},
                  {"--layers 1 --trace old/below/x --load old", "in the directory of --load old"},
                  {"--trace saved/x", "in the directory of --save saved"},
                  {"--trace x --save x.partial", "belongs to --save x.partial"}});
}

// What is printed would be lost, or what is written.
TEST_P(BadRun, OutputsThatAreTheScreen) {
  write("f", "before\n");
  const auto by = [&](const std::string& streams, std::string_view flags) {
    const auto before = files();
    const Program program{GetParam(), {"sh", "-c", "exec \"$@\" " + streams, "sh"}};
    const Ended ended = run(program, small_run(flags));
    EXPECT_EQ(ended.status, 2) << streams << " " << flags;
    EXPECT_EQ(files(), before) << streams << " " << flags;
    return ended.err;
  };
  EXPECT_NE(by(">>f", "--report f").find("--report f: the file of standard output"),
            std::string::npos);
  EXPECT_NE(by(">>f", "--trace /dev/stdout").find("the file of standard output"),
            std::string::npos);
  EXPECT_NE(by("<f", "--timeline f").find("the file of standard input"), std::string::npos);
  by("2>/dev/null >>f", "--trace f --quiet");
}

TEST_P(BadRun, Momentum) {
  const std::string sgd = GetParam() == "01_sgd" ? "" : "--optimizer sgd ";
  expect_refused({{sgd + "--momentum 1", "--momentum must be in [0, 1), not 1"},
                  {sgd + "--momentum -0.5", "--momentum must be in [0, 1), not -0.5"},
                  {sgd + "--momentum nan", "--momentum must be in [0, 1), not nan"},
                  {sgd + "--nesterov", "--nesterov takes a --momentum above 0"}});
}

}  // namespace
}  // namespace ladder::test
