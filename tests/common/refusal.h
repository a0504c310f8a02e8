// What every program does with bad input: one line on stderr that says what is legal, exit
// status 2, and no file created or changed.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/common/programs.h"

namespace ladder::test {

/// A command line that must be refused, and a part of the message.
struct BadInput {
  std::string flags;
  std::string says;
};

/// Those of a chapter in a table of refused flags; refused_flags.cpp says what it holds.
std::vector<BadInput> refused_rows(const std::string& file, const std::string& chapter);

/// A test of one chapter's refusals. The parameter is the chapter.
class Refusals : public Programs, public ::testing::WithParamInterface<std::string> {
 protected:
  /// Files that an earlier run left: they must survive.
  Refusals();

  /// Adds all outputs to the command line. None of them may be overwritten.
  void expect_refused(const BadInput& input) const;
  void expect_refused(const std::vector<BadInput>& inputs) const;
  /// For command lines that have empty words, or words with blanks.
  void expect_refused(const std::vector<std::string>& args, std::string_view says) const;
};

/// "ch02_adamw"
inline std::string chapter_name(const ::testing::TestParamInfo<std::string>& info) {
  return "ch" + info.param;
}

}  // namespace ladder::test
