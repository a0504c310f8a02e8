// Flags that a chapter refuses, as tables say: tests/*/refused.txt.
//
//   from 02_adamw      the chapters of the table: this one and what descends from it,
//   only 14_stability  or it alone,
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

struct Table {
  std::vector<std::string> chapters;
  std::vector<BadInput> rows;
};

std::vector<std::string> chapters_of(const std::string& line) {
  if (line.starts_with("from ")) return some_chapters_from(line.substr(5));
  if (line.starts_with("only ")) return {line.substr(5)};
  CHECK(line == "ranks", "neither 'from', 'only' nor 'ranks': {}", line);
  std::vector<std::string> all;
  for (const DataParallel& row : data_parallel()) all.push_back(row.chapter);
  return all;
}

Table read_table(const std::string& file) {
  std::ifstream in(file);
  Table table;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (table.chapters.empty()) {
      table.chapters = chapters_of(line);
      continue;
    }
    const size_t arrow = line.find(" => ");
    CHECK(arrow != std::string::npos, "{}: no ' => ' in '{}'", file, line);
    table.rows.push_back({line.substr(0, arrow), line.substr(arrow + 4)});
  }
  CHECK(!table.rows.empty(), "{}: no rows", file);
  return table;
}

class Flags : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, Flags, ::testing::ValuesIn(chapters_from("01_sgd")),
                         chapter_name);

TEST_P(Flags, OfTheTables) {
  for (const std::string& file : listed_files(LADDER_REFUSED_FLAGS))
    if (const Table table = read_table(file); std::ranges::count(table.chapters, GetParam()) > 0)
      expect_refused(table.rows);
}

}  // namespace
}  // namespace ladder::test
