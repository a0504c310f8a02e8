// Flags that a chapter refuses. Tables list them: tests/*/refused.txt.
//
//   from 02_adamw      the chapters of the rows below: this one and what descends from it,
//   only 14_stability  or it alone, or as many as are named,
//   ranks              or those of tests/common/ranks.h
//   --eps 0 => --eps must be above 0, not 0
//
// A row has flags and a part of what the line on stderr says. Chapters that train nothing have
// tables, too, which their own tests read.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class Flags : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, Flags, ::testing::ValuesIn(chapters_from("01_sgd")),
                         chapter_name);

TEST_P(Flags, OfTheTables) {
  for (const std::string& file : listed_files(LADDER_REFUSED_FLAGS))
    expect_refused(refused_rows(file, GetParam()));
}

}  // namespace
}  // namespace ladder::test
