// Runs whose reports must say that what was predicted was counted, to the byte, as tables say:
// tests/*/predicted.txt.
//
//   with --layers 4          flags of all runs of the table
//   of 06_checkpointing --steps 1     begins a test: a chapter, and flags of all runs of the test
//   each --ranks 2 | --ranks 4        the runs below are repeated with each of these
//   run --precision bf16     a run; its flags come last
//   same 02_adamw            the memory of the run above is that of another chapter
#include <fstream>
#include <ostream>
#include <sstream>

#include "tests/common/memory.h"

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

/// Each of `some` with each of "A | B".
std::vector<std::string> with_each(const std::vector<std::string>& some, const std::string& text) {
  std::vector<std::string> all;
  for (const std::string& flags : some) {
    std::istringstream in(text);
    for (std::string more; std::getline(in, more, '|');) all.push_back(flags + " " + more);
  }
  return all;
}

std::vector<Predictions> read_tests(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<Predictions> tests;
  std::string common;
  for (std::string text; std::getline(in, text);) {
    if (text.empty() || text[0] == '#') continue;
    const size_t space = std::min(text.find(' '), text.size());
    const std::string verb = text.substr(0, space), rest = text.substr(space);
    if (verb == "with") {
      common = rest;
    } else if (verb == "of") {
      const std::string chapter = words(rest).at(0), flags = rest.substr(1 + chapter.size());
      const std::string name = file.parent_path().filename().string() + "_" +
                               std::to_string(tests.size()) + "_" + chapter.substr(0, 2);
      tests.push_back({.name = name, .chapter = chapter, .flags = common + flags});
    } else {
      CHECK(!tests.empty(), "{}: no 'of' above: {}", file.string(), text);
      CHECK(verb == "each" || verb == "run" || verb == "same", "{}: {}", file.string(), text);
      if (verb == "each")
        tests.back().each = with_each(tests.back().each, rest);
      else
        tests.back().rows.push_back({verb, rest});
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
      SCOPED_TRACE(verb + more + some + " of " + chapter + flags);
      if (verb == "run") {
        last = report(chapter, flags + some + more);
        EXPECT_TRUE(as_predicted(last));
      } else {
        const std::string other = words(more).at(0);
        EXPECT_EQ(last["memory"], report(other, more.substr(1 + other.size()))["memory"]);
      }
    }
}

}  // namespace
}  // namespace ladder::test
