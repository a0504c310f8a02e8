// What tests of chapters 07 to 10, 18 and 30 share. Each of these chapters trains on any number of
// ranks as 06 does on one. So a test is written once, and runs on every row of this table.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tests/common/same_trace.h"

namespace ladder::test {

struct DataParallel {
  std::string chapter;
  /// For --fault, the first sum of gradients: "all_reduce:1".
  std::string sums;
};
const std::vector<DataParallel>& data_parallel();

/// In tables a word stands for several chapters: "ranks" for those above, "06_checkpointing+" for
/// all that descend from that chapter, and for itself.
bool is_several(const std::string& word);
/// Those that it stands for; of another word the chapter that it is.
std::vector<std::string> chapters_of(const std::string& word);

/// "ch07_ddp"
inline std::string row_name(const ::testing::TestParamInfo<DataParallel>& info) {
  return "ch" + info.param.chapter;
}
inline void PrintTo(const DataParallel& row, std::ostream* out) { *out << row.chapter; }

}  // namespace ladder::test
