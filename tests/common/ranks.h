// What tests of chapters 07 to 10 and 18 share. Each chapter trains on any number of ranks as 06
// does on one, so a test is written once and runs on every row of this table.
#pragma once

#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/common/same_trace.h"

namespace ladder::test {

struct DataParallel {
  std::string chapter;
  /// Flags that change when and how ranks communicate, and not one bit of the run.
  std::vector<std::string> ways;
  /// For --fault: each changes the weights, at 2 ranks and more.
  std::vector<std::string> faults;
  /// The same, the first sum of gradients: "all_reduce:1".
  std::string sums;
  /// The same, of two layers: the first time that ranks tell each other their losses.
  std::string losses;
  /// Whether a rank has optimizer states of its share alone.
  bool sharded = false;
  /// Whether the weights of all ranks are gathered when they have been updated.
  bool gathers_after_update = false;
  /// Whether gradients are summed over ranks in every micro-step.
  bool each_micro_step = false;
};
const std::vector<DataParallel>& data_parallel();

/// "ch07_ddp"
inline std::string row_name(const ::testing::TestParamInfo<DataParallel>& info) {
  return "ch" + info.param.chapter;
}
inline void PrintTo(const DataParallel& row, std::ostream* out) { *out << row.chapter; }

/// How a batch is cut: over ranks, and on each of them into micro-steps.
struct Cut {
  int ranks;
  int GA;
};
/// "--ranks 4 --batch 32 --micro-batch 2"
std::string flags_of(Cut cut, int batch = 32);
/// The same for ranks that mpirun starts.
std::string flags_under_mpirun(Cut cut, int batch = 32);

/// Precision and backend: a run has the bits of no other.
struct Tier {
  std::string name;
  std::string flags;
};
const std::vector<Tier>& tiers();
inline void PrintTo(const Tier& tier, std::ostream* out) { *out << tier.flags; }

/// A test of every chapter in every tier.
class SameTraceRanks : public SameTrace,
                       public ::testing::WithParamInterface<std::tuple<DataParallel, Tier>> {
 protected:
  static const DataParallel& row() { return std::get<0>(GetParam()); }
  static const Tier& tier() { return std::get<1>(GetParam()); }
  /// Which of tiers() this is: a pairwise choice counts with it.
  static size_t tier_index();

  /// 06 on one rank.
  Trace alone(const std::string& flags, Range range = {0, kSteps}) const {
    return trace("06_checkpointing", tier().flags + flags, range);
  }
  Trace ranks(const std::string& flags, Range range = {0, kSteps}) const {
    return trace(row().chapter, tier().flags + flags, range);
  }
};
inline std::string row_and_tier(const ::testing::TestParamInfo<std::tuple<DataParallel, Tier>>& p) {
  return "ch" + std::get<0>(p.param).chapter + "_" + std::get<1>(p.param).name;
}

}  // namespace ladder::test
