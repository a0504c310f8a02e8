#include "tests/common/ranks.h"

#include "tests/common/programs.h"

namespace ladder::test {

bool is_several(const std::string& word) { return word == "ranks" || word.ends_with('+'); }

std::vector<std::string> chapters_of(const std::string& word) {
  if (word.ends_with('+')) return chapters_from(word.substr(0, word.size() - 1));
  return word == "ranks" ? kDataParallel : std::vector{word};
}

}  // namespace ladder::test
