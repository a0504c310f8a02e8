// Flags that a chapter refuses, as tables say: tests/*/refused.txt.
//
//   from 02_adamw      the chapters of the rows below: this one and what descends from it,
//   only 14_stability  or it alone, or as many as are named,
//   ranks              or those of tests/common/ranks.h
//   --eps 0 => --eps must be above 0, not 0
//
// A row has flags and a part of what the line on stderr says.
#include <algorithm>
#include <fstream>

#include "tests/common/ranks.h"
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

struct Rows {
  std::vector<std::string> chapters;
  std::vector<BadInput> inputs{};
};

/// Of a line without " => ".
std::vector<std::string> chapters_of(const std::string& line) {
  if (line.starts_with("from ")) return some_chapters_from(line.substr(5));
  if (line.starts_with("only ")) return words(line.substr(5));
  CHECK(line == "ranks", "neither a row nor 'from', 'only' or 'ranks': {}", line);
  std::vector<std::string> all;
  for (const DataParallel& row : data_parallel()) all.push_back(row.chapter);
  return all;
}

std::vector<Rows> read_table(const std::string& file) {
  std::ifstream in(file);
  std::vector<Rows> all;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t arrow = line.find(" => ");
    if (arrow == std::string::npos)
      all.push_back({chapters_of(line)});
    else
      all.at(all.size() - 1).inputs.push_back({line.substr(0, arrow), line.substr(arrow + 4)});
  }
  for (const Rows& rows : all) CHECK(!rows.inputs.empty(), "{}: no rows", file);
  return all;
}

class Flags : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, Flags, ::testing::ValuesIn(chapters_from("01_sgd")),
                         chapter_name);

TEST_P(Flags, OfTheTables) {
  for (const std::string& file : listed_files(LADDER_REFUSED_FLAGS))
    for (const Rows& rows : read_table(file))
      if (std::ranges::count(rows.chapters, GetParam()) > 0) expect_refused(rows.inputs);
}

}  // namespace
}  // namespace ladder::test
