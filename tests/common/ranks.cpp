#include "tests/common/ranks.h"

namespace ladder::test {

const std::vector<DataParallel>& data_parallel() {
  static const std::vector<DataParallel> rows = {
      {.chapter = "07_ddp", .sums = "all_reduce:1"},  // number 0 counts targets
      {.chapter = "08_zero1", .sums = "reduce_scatter:0"},
      {.chapter = "09_zero2", .sums = "reduce_scatter:0"},
      {.chapter = "10_zero3", .sums = "reduce_scatter:0"},
      {.chapter = "30_hsdp", .sums = "reduce_scatter:0"},
      {.chapter = "18_offload", .sums = "reduce_scatter:0"},
  };
  return rows;
}

bool is_several(const std::string& word) { return word == "ranks" || word.ends_with('+'); }

std::vector<std::string> chapters_of(const std::string& word) {
  if (word.ends_with('+')) return chapters_from(word.substr(0, word.size() - 1));
  if (word != "ranks") return {word};
  std::vector<std::string> all;
  for (const DataParallel& row : data_parallel()) all.push_back(row.chapter);
  return all;
}

}  // namespace ladder::test
