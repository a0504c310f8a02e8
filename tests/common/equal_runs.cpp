// Runs that must have other bits, or the same where tests/layouts.txt cannot say it, as tables do:
// tests/*/equal_runs.txt, on the CUDA kernels tests/*/cuda_runs.txt, and under mpirun
// tests/*/mpi_runs.txt. A test of a table is one of GoogleTest, on each of the models that stand
// above it.
//
// Two words stand for several chapters, and a test with such a word is a test for each of them:
// `ranks` for those of tests/common/ranks.h, and `06_checkpointing+` for all that descend from
// that chapter, and for itself.
//
// clang-format off
//   on small: --layers 2       the tests below run with these flags; lines that follow each other add up
//   test AnyThreads            begins a test; its name
//   steps 3                    how many steps, instead of kSteps
//   text 400                   takes so many bytes of the text, for a short validation;
//   text +2000                 or adds so many, to hold out a long sequence
//   processes 4                mpirun starts so many processes for the runs below, except `run`
//   run 04_clipping --clip 1   what the lines below are compared with; they take its flags, too,
//                              except those that they give themselves
//   each --ranks 2 | --ranks 4 the lines below are repeated with each of these, up to the next `run`;
//                              "recv:0..3" are recv:0, recv:1, recv:2, recv:3
//   same --threads 2           the same bits, of the same chapter
//   same 06_checkpointing      or of another
//   other --seed 2             other weights at the end than `run` and all `other` lines above
//   lost --fault skip:recv:1   other weights at the end; they may be NaN, because a rank may have
//                              computed with what it never got
//   norm --fault ...           another norm of the gradients in the first step
//   loss --fault ...           another loss in the first step, and the same norm
//   near 0.01 --tp 4           losses and norms that differ by at most that share
//   far 0.01 --seed 2          a loss or norm that differs by more, or is NaN
//   half --ranks 4             runs the first half, and saves
//   rest 08_zero1 --ranks 2    goes on from `half`, and both together have the same bits
// clang-format on
#include <algorithm>
#include <ostream>
#include <sstream>

#include "tests/common/ranks.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

struct Line {
  std::string verb, chapter, flags;
  double share = 0;  ///< of near and far
};

struct EqualRuns {
  std::string name, model;
  std::vector<Line> lines{};
};
void PrintTo(const EqualRuns& test, std::ostream* out) { *out << test.model; }

/// "near 0.01 06_checkpointing --clip 1": a chapter is a word that is no flag, and may be left out.
Line parse_line(const std::string& text) {
  std::istringstream in(text);
  std::string verb, share = "0", word, rest;
  in >> verb;
  if (verb == "near" || verb == "far") in >> share;
  in >> word;
  std::getline(in, rest);
  const bool is_flag = word.starts_with('-');
  if (is_several(word) || (!is_flag && word.find('_') != std::string::npos))
    return {verb, word, rest, std::stod(share)};
  return {verb, "", " " + word + rest, std::stod(share)};
}

/// `flags` but for those that `others` give, too.
std::string without(const std::string& flags, const std::string& others) {
  const std::vector<std::string> given = words(others);
  std::string rest;
  bool keep = true;
  for (const std::string& word : words(flags)) {
    if (word.starts_with("--")) keep = std::ranges::count(given, word) == 0;
    if (keep) rest += " " + word;
  }
  return rest;
}

/// A test for each chapter that a word of it stands for; `folder` is that of the table.
std::vector<EqualRuns> for_chapters(const EqualRuns& test, const std::string& folder) {
  std::string word;
  for (const Line& line : test.lines)
    if (is_several(line.chapter)) word = line.chapter;
  if (word.empty()) return {{folder + "_" + test.name, test.model, test.lines}};
  std::vector<EqualRuns> all;
  for (const std::string& chapter : chapters_of(word)) {
    all.push_back({chapter + "_" + test.name, test.model, test.lines});
    for (Line& line : all.back().lines)
      if (line.chapter == word) line.chapter = chapter;
  }
  return all;
}

struct Model {
  std::string name, flags;
};

/// "on NAME: FLAGS"
Model parse_model(const std::string& text) {
  const size_t colon = text.find(':');
  CHECK(colon != std::string::npos, "no 'on NAME: FLAGS': {}", text);
  return {.name = text.substr(3, colon - 3), .flags = text.substr(colon + 1) + " "};
}

std::vector<EqualRuns> read_tests(const std::filesystem::path& file) {
  std::vector<EqualRuns> all, block;
  std::vector<Model> models;
  bool in_models = false;
  const auto finish = [&] {
    for (const EqualRuns& test : block)
      for (EqualRuns& one : for_chapters(test, file.parent_path().filename().string()))
        all.push_back(std::move(one));
    block.clear();
  };
  for (const std::string& text : table_lines(file)) {
    if (text.starts_with("on ")) {
      if (!in_models) models.clear();
      models.push_back(parse_model(text));
    } else if (text.starts_with("test ")) {
      finish();
      for (const Model& model : models)
        block.push_back({text.substr(5) + "_" + model.name, model.flags});
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
  int processes = 0;  ///< of mpirun; 0: without it
  Line base;
  std::vector<std::string> each;
  Trace whole, first_half;
  std::vector<Trace> others;

  Program program(const Line& line) const {
    const std::string& chapter = line.chapter.empty() ? base.chapter : line.chapter;
    return processes > 0 && line.verb != "run" ? under_mpirun(chapter, processes)
                                               : Program(chapter);
  }
  std::string flags(const Line& line) const {
    const bool alone = line.verb == "run";
    return GetParam().model + (alone ? "" : without(base.flags, line.flags)) + " " + line.flags;
  }
  Trace of(const Line& line, const std::string& more = "", Range range = {0, -1}) const {
    if (range.end < 0) range.end = steps;
    return trace(program(line), flags(line) + more, range);
  }
  /// A line that sets something for those below.
  bool set(const Line& line) {
    if (line.verb == "steps") {
      steps = std::stoll(line.flags);
    } else if (line.verb == "processes") {
      processes = std::stoi(line.flags);
    } else if (line.verb == "text") {
      const std::string text = read("text.txt");
      const bool longer = line.flags.starts_with(" +");
      const std::string part = text.substr(0, std::stoul(line.flags));
      write("text.txt", longer ? text + part : part);
    } else if (line.verb == "run") {
      base = line;
      each = {""};
      whole = of(line);
      others = {whole};
    } else if (line.verb == "each") {
      each = with_each(each, line.flags);
    } else {
      return false;
    }
    return true;
  }
  void expect(const Line& line) {
    if (line.verb == "same") {
      EXPECT_TRUE(same_trace(whole, of(line)));
    } else if (line.verb == "other") {
      const Trace run = of(line);
      for (const Trace& before : others) EXPECT_TRUE(different_trace(before, run));
      others.push_back(run);
    } else if (line.verb == "lost") {
      EXPECT_TRUE(ends_elsewhere(whole, of(line)));
    } else if (line.verb == "norm") {
      EXPECT_NE(of(line).steps.at(0).grad_norm, whole.steps.at(0).grad_norm);
    } else if (line.verb == "loss") {
      const Trace run = of(line);
      EXPECT_NE(run.steps.at(0).loss, whole.steps.at(0).loss);
      EXPECT_EQ(run.steps.at(0).grad_norm, whole.steps.at(0).grad_norm);
    } else if (line.verb == "near") {
      EXPECT_TRUE(near(of(line), whole, line.share));
    } else if (line.verb == "far") {
      EXPECT_FALSE(near(of(line), whole, line.share));
    } else if (line.verb == "half") {
      std::filesystem::remove_all(path("half"));
      first_half = of(line, " --save half", {0, steps / 2});
    } else if (line.verb == "rest") {
      EXPECT_TRUE(
          same_trace(whole, joined(first_half, of(line, " --load half", {steps / 2, steps}))));
    } else {
      FAIL() << "no such verb";
    }
  }
};

TEST_P(Runs, AreEqual) {
  for (const Line& line : GetParam().lines) {
    if (set(line)) continue;
    for (const std::string& more : each) {
      const std::string flags = line.flags + more;
      SCOPED_TRACE(base.chapter + " " + base.flags + ": " + line.verb + " " + line.chapter + flags);
      expect({line.verb, line.chapter, flags, line.share});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Equal, Runs, ::testing::ValuesIn(all_tests()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace ladder::test
