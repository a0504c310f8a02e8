// Runs that must have the same bits, or others, as tables say: tests/*/equal_runs.txt, and for
// ThreadSanitizer tests/*/threads_runs.txt. A test of a table is one of GoogleTest, on each of the
// models that stand above it.
//
// clang-format off
//   on exact                   the tests below run on each table of kernels with each small model,
//   on small: --layers 2       or with these flags; lines that follow each other add up
//   test AnyThreads            its name
//   steps 3                    not kSteps
//   text 400                   so many bytes of the text, for a short validation;
//   text +2000                 or so many more, to hold out a long sequence
//   run 04_clipping --clip 1   what the lines below are compared with; their flags come on top of it
//   same --threads 2           the same bits, of the same chapter
//   same 06_checkpointing      or of another
//   equal 06_checkpointing     the same bits, with these flags alone
//   other --seed 2             other weights at the end, also than those of all `other` lines above
//   resumed                    the same bits when it stops half-way, saves, and a new run goes on
//   half --ranks 4             the first half, which saves
//   rest 08_zero1 --ranks 2    goes on from there, and both together have the same bits
// clang-format on
#include <cctype>
#include <fstream>
#include <ostream>
#include <sstream>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

struct Line {
  std::string verb, chapter, flags;
};

struct EqualRuns {
  std::string name, model;
  std::vector<Line> lines;
};
void PrintTo(const EqualRuns& test, std::ostream* out) { *out << test.model; }

/// "same 06_checkpointing --clip 1": a chapter begins with a digit, and may be left out.
Line parse_line(const std::string& text) {
  std::istringstream in(text);
  Line line;
  in >> line.verb >> std::ws;
  if (line.verb != "steps" && line.verb != "text" && std::isdigit(in.peek())) in >> line.chapter;
  std::getline(in, line.flags);
  return line;
}

/// The models of "on exact" or "on NAME: FLAGS".
std::vector<Exact> models_of(const std::string& text) {
  if (text == "on exact") return exact_tier();
  const size_t colon = text.find(':');
  CHECK(colon != std::string::npos, "neither 'on exact' nor 'on NAME: FLAGS': {}", text);
  return {{.name = text.substr(3, colon - 3), .flags = text.substr(colon + 1) + " "}};
}

std::vector<EqualRuns> read_tests(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<EqualRuns> all, block;
  std::vector<Exact> models;
  bool in_models = false;
  const auto finish = [&] {
    all.insert(all.end(), block.begin(), block.end());
    block.clear();
  };
  for (std::string text; std::getline(in, text);) {
    if (text.empty() || text[0] == '#') continue;
    if (text.starts_with("on ")) {
      if (!in_models) models.clear();
      const std::vector<Exact> more = models_of(text);
      models.insert(models.end(), more.begin(), more.end());
    } else if (text.starts_with("test ")) {
      finish();
      for (const Exact& model : models)
        block.push_back(
            {file.parent_path().filename().string() + "_" + text.substr(5) + "_" + model.name,
             model.flags,
             {}});
    } else {
      CHECK(!block.empty(), "{}: no test above: {}", file.string(), text);
      for (EqualRuns& test : block) test.lines.push_back(parse_line(text));
    }
    in_models = text.starts_with("on ");
  }
  finish();
  return all;
}

std::vector<EqualRuns> all_tests() {
  std::vector<EqualRuns> all;
  for (const std::string& file : listed_files(LADDER_EQUAL_RUNS))
    for (EqualRuns& test : read_tests(file)) all.push_back(std::move(test));
  return all;
}

class Runs : public SameTrace, public ::testing::WithParamInterface<EqualRuns> {
 protected:
  int64_t steps = kSteps;
  Line base;
  Trace whole, first_half;
  std::vector<Trace> others;

  Trace of(const Line& line, const std::string& more = "", Range range = {0, -1}) const {
    const std::string top = line.verb == "run" || line.verb == "equal" ? "" : base.flags + " ";
    if (range.end < 0) range.end = steps;
    return trace(line.chapter.empty() ? base.chapter : line.chapter,
                 GetParam().model + top + line.flags + more, range);
  }
  void expect(const Line& line) {
    if (line.verb == "steps") {
      steps = std::stoll(line.flags);
    } else if (line.verb == "text") {
      const std::string text = read("text.txt");
      const bool longer = line.flags[0] == '+';
      const std::string part = text.substr(0, std::stoul(line.flags));
      write("text.txt", longer ? text + part : part);
    } else if (line.verb == "run") {
      base = line;
      whole = of(line);
      others = {whole};
    } else if (line.verb == "same" || line.verb == "equal") {
      EXPECT_TRUE(same_trace(whole, of(line)));
    } else if (line.verb == "other") {
      const Trace run = of(line);
      for (const Trace& before : others) EXPECT_TRUE(different_trace(before, run));
      others.push_back(run);
    } else if (line.verb == "half") {
      std::filesystem::remove_all(path("half"));
      first_half = of(line, " --save half", {0, kHalf});
    } else if (line.verb == "rest") {
      EXPECT_TRUE(same_trace(whole, joined(first_half, of(line, " --load half", {kHalf, steps}))));
    } else if (line.verb == "resumed") {
      std::filesystem::remove_all(path("half"));
      const Trace first = of(line, " --save half", {0, kHalf});
      EXPECT_TRUE(same_trace(whole, joined(first, of(line, " --load half", {kHalf, steps}))));
    } else {
      FAIL() << "no such verb";
    }
  }
};

TEST_P(Runs, AreEqual) {
  for (const Line& line : GetParam().lines) {
    SCOPED_TRACE(base.chapter + base.flags + ": " + line.verb + " " + line.chapter + line.flags);
    expect(line);
  }
}

INSTANTIATE_TEST_SUITE_P(Equal, Runs, ::testing::ValuesIn(all_tests()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace ladder::test
