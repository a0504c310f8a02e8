// Runs whose reports must have equal predicted and counted bytes, and that tests/layouts.txt does
// not draw. Tables list them: tests/*/predicted.txt.
//
//   with --layers 4          flags of all runs of the table
//   of 06_checkpointing --steps 1     begins a test: a chapter, or a word for several as in
//                            equal_runs.cpp, and flags of all runs of the test
//   text 6000                the text has so many bytes
//   each --ranks 2 | --ranks 4        the runs below are repeated with each of these
//   run --precision bf16     a run; its flags come last
//   unknown --reduction tree a run whose traffic nobody predicts: ranks send unlike amounts
//   same 02_adamw            the memory of the run above is that of another chapter
#include <ostream>
#include <set>
#include <sstream>

#include "tests/common/memory.h"
#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

struct Row {
  std::string verb, flags;
};

struct Predictions {
  std::string name, chapter, flags;
  std::vector<std::string> each = {""};
  std::vector<Row> rows{};
};
void PrintTo(const Predictions& test, std::ostream* out) { *out << test.flags; }

std::vector<Predictions> read_tests(const std::filesystem::path& file) {
  std::vector<Predictions> tests;
  std::string common;
  size_t begin = 0;  // of the tests that the rows below are of
  for (const std::string& text : table_lines(file)) {
    const size_t space = std::min(text.find(' '), text.size());
    const std::string verb = text.substr(0, space), rest = text.substr(space);
    if (verb == "with") {
      common = rest;
    } else if (verb == "of") {
      const std::string word = words(rest).at(0), flags = rest.substr(1 + word.size());
      begin = tests.size();
      for (const std::string& chapter : chapters_of(word))
        tests.push_back({.name = fmt::format("{}_{}_{}", file.parent_path().filename().string(),
                                             tests.size(), chapter.substr(0, 2)),
                         .chapter = chapter,
                         .flags = common + flags});
    } else {
      CHECK(!tests.empty(), "{}: no 'of' above: {}", file.string(), text);
      const std::set<std::string> verbs{"each", "run", "unknown", "same", "text"};
      CHECK(verbs.contains(verb), "{}: {}", file.string(), text);
      for (size_t i = begin; i < tests.size(); ++i) {
        if (verb == "each")
          tests[i].each = with_each(tests[i].each, rest);
        else
          tests[i].rows.push_back({verb, rest});
      }
    }
  }
  return tests;
}

std::vector<Predictions> all_tests() {
  std::vector<Predictions> all;
  for (const std::string& file : listed_files(LADDER_PREDICTED))
    for (Predictions& test : read_tests(file)) all.push_back(std::move(test));
  return all;
}

class Bytes : public MemoryRuns, public ::testing::WithParamInterface<Predictions> {};
INSTANTIATE_TEST_SUITE_P(Predicted, Bytes, ::testing::ValuesIn(all_tests()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Bytes, AreCounted) {
  const auto& [name, chapter, flags, each, rows] = GetParam();
  ASSERT_FALSE(rows.empty());
  nlohmann::json last;
  for (const std::string& some : each)
    for (const auto& [verb, more] : rows) {
      if (verb == "text") {
        std::string text = read("text.txt");
        while (text.size() < std::stoul(more)) text += text;
        write("text.txt", text.substr(0, std::stoul(more)));
        continue;
      }
      SCOPED_TRACE(verb + more + some + " of " + chapter + flags);
      if (verb != "same") {
        last = report(chapter, flags + some + more);
        if (verb == "unknown") {
          EXPECT_TRUE(last["extra"]["traffic"]["predicted"].is_null());
          for (const char* of : {"traffic", "traffic_inside", "traffic_across"})
            last["extra"].erase(of);
        }
        EXPECT_TRUE(as_predicted(last));
      } else {
        const std::string other = words(more).at(0);
        EXPECT_EQ(last["memory"], report(other, more.substr(1 + other.size()))["memory"]);
      }
    }
}

}  // namespace
}  // namespace ladder::test
