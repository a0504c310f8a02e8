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
}

TEST_P(BadRun, Config) {
  write("unknown.toml", "no-such-flag = 3\n");
  write("chapter.toml", "eval-every = 'often'\n");
  write("noise.toml", "\x01\x02 = = [[\n");
  write("refused.toml", "heads = 7\n");
  expect_refused({{"--config no_such.toml", "no_such.toml"},
                  {"--config .", "--config"},
                  {"--config unknown.toml", "no-such-flag"},
                  {"--config chapter.toml", "--eval-every"},
                  {"--config noise.toml", "--config"},
                  {"--config refused.toml", "--heads 7 must divide --channels 128"}});
}

TEST_P(BadRun, CommandLine) {
  expect_refused({{"--no-such-flag", "--no-such-flag"},
                  {"--no-such-flag 3", "--no-such-flag"},
                  {"surplus", "surplus"},
                  {"--batch four", "--batch"},
                  {"--batch 2.5", "--batch"},
                  {"--batch 99999999999999999999", "--batch"},
                  {"--seed -1", "--seed"},
                  {"--lr fast", "--lr"},
                  {"--batch 4 --batch 8", "--batch"},
                  {"--batch", "--batch"}});
}

TEST_P(BadRun, Sizes) {
  expect_refused({{"--model huge", "legal are nano, tiny, small"},
                  {"--heads 7", "--heads 7 must divide --channels 128"},
                  {"--heads 0", "--heads must be"},
                  {"--heads -8", "--heads must be"},
                  {"--channels 100", "--heads 8 must divide --channels 100"},
                  {"--channels 0", "--channels must be"},
                  {"--layers 0", "--layers must be"},
                  {"--layers -1", "--layers must be"},
                  {"--seq-len 0", "--seq-len must be"},
                  {"--seq-len 17", "it may only shorten"},
                  {"--batch 0", "--batch must be"},
                  {"--batch -4", "--batch must be"}});
}

TEST_P(BadRun, Numbers) {
  expect_refused({{"--steps -1", "--steps must be"},
                  {"--lr -0.1", "--lr must be a finite number, at least 0"},
                  {"--lr nan", "--lr must be a finite number, at least 0"},
                  {"--lr inf", "--lr must be a finite number, at least 0"},
                  {"--lr 1e39", "--lr must be at most 3.4028235e+38, not 1e+39"},
                  {"--threads 0", "--threads must be"},
                  {"--threads -2", "--threads must be"},
                  {"--eval-every -1", "--eval-every must be"},
                  {"--save-every -1", "--save-every must be"},
                  {"--sample -1", "--sample must be"},
                  {"--temperature -1", "--temperature must be a finite number, at least 0"},
                  {"--temperature nan", "--temperature must be a finite number, at least 0"},
                  {"--top-k -1", "--top-k must be"}});
  expect_refused({"--data", "text.txt", "--save-every", "1"}, "--save-every needs --save");
}

TEST_P(BadRun, Machine) {
  expect_refused({{"--ranks 0", "--ranks must be"},
                  {"--ranks -1", "--ranks must be"},
                  {"--backend gpu", "this build has ref, cpu"}});
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
       {"--trace text.txt", "would write in --data text.txt"},
       {"--trace folder/../text.txt", "would write in --data text.txt"},
       {"--config run.toml --report run.toml", "would write in --config run.toml"},
       {"--trace ./report.json", "--report report.json: would write in --trace ./report.json"}});
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
