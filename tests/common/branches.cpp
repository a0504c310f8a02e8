// Branches beside the trunk: their flags, which all other programs refuse by the branch's name, and
// checkpoints that go from one to the other.
#include "common/run/branches.h"

#include <algorithm>
#include <regex>
#include <set>

#include <fmt/format.h>

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Branches : public Programs {
 protected:
  /// What --help says of a flag, up to the next one; empty: the chapter does not have it.
  std::string help_of(const std::string& chapter, const BranchFlag& added) const {
    const std::string all = run(chapter, {"--help"}).out;
    const size_t begin = all.find("  " + std::string(added.flag) + " ");
    if (begin == all.npos) return "";
    return all.substr(begin, all.find("\n  --", begin) - begin);
  }

  std::vector<std::string> flags_of(const std::string& chapter) const {
    const std::string all = run(chapter, {"--help"}).out;
    const std::regex flag(R"(\n +(--[a-z0-9-]+))");
    std::vector<std::string> flags;
    for (std::sregex_iterator found(all.begin(), all.end(), flag), end; found != end; ++found)
      flags.push_back((*found)[1]);
    return flags;
  }
};

TEST_F(Branches, HaveTheFlagsOfTheTable) {
  const std::vector<std::string> all = chapters_from("01_sgd");
  for (const BranchFlag& added : branch_flags()) {
    const std::string chapter(added.chapter);
    if (!has(all, chapter)) continue;
    const std::string help = help_of(chapter, added);
    EXPECT_NE(help, "") << added.flag << " is none of " << chapter;
    EXPECT_NE(help.find(added.value), help.npos) << added.value << " in\n" << help;
  }
}

TEST_F(Branches, HaveNoFlagThatIsNotInTheTable) {
  std::set<std::string> known;
  for (const BranchFlag& added : branch_flags()) known.emplace(added.flag);
  for (const std::string& chapter : chapters_from("01_sgd")) {
    const bool is_trunk = chapter < "14";
    for (const std::string& flag : flags_of(chapter))
      if (is_trunk)
        known.insert(flag);
      else
        EXPECT_TRUE(known.contains(flag)) << chapter << " " << flag;
  }
}

TEST_F(Branches, AreNamedByAllOtherPrograms) {
  const std::vector<std::string> all = chapters_from("01_sgd");
  for (const BranchFlag& added : branch_flags()) {
    if (!has(all, added.chapter)) continue;
    const std::vector<std::string> branch = chapters_from(added.chapter);
    for (const std::string& chapter : some_chapters_from("01_sgd")) {
      // The value of a flag that an earlier chapter does not have is no matter of a branch.
      if (has(branch, chapter) || (!added.value.empty() && help_of(chapter, added).empty()))
        continue;
      const std::string value(added.value.empty() ? "1" : added.value);
      const Ended ended = run(chapter, small_run(std::string(added.flag) + " " + value));
      EXPECT_EQ(ended.status, 2) << chapter << " " << added.flag;
      EXPECT_EQ(ended.err, "error: " + branch_of(added.flag, added.value) + "\n") << chapter;
    }
  }
}

struct Exchange {
  const char *branch, *parent;
  const char* states;  ///< that the branch adds
};
constexpr Exchange kExchanges[] = {{"14_stability", "04_clipping", "spike_guard"},
                                   {"15_batch_size", "07_ddp", "noise_scale"},
                                   {"16_fp8", "07_ddp", "fp8"},
                                   {"17_head_chunks", "06_checkpointing", ""},
                                   {"18_offload", "10_zero3", ""},
                                   {"19_llama", "06_checkpointing", ""},
                                   {"21_moe", "19_llama", "router_bias"},
                                   {"22_expert_parallel", "09_zero2", "router_bias"},
                                   {"26_packing", "06_checkpointing", "documents"},
                                   {"27_data_order", "07_ddp", "documents"},
                                   {"29_monitor", "08_zero1", "batches, detectors, spike_guard"}};

TEST_F(Branches, ExchangeCheckpointsWithTheirParents) {
  for (const auto& [branch, parent, states] : kExchanges) {
    if (!has(chapters_from("01_sgd"), branch)) continue;
    SCOPED_TRACE(branch);
    train(parent, "--steps 1 --save trunk");
    const std::string there = train(branch, "--steps 2 --load trunk --save branch").err;
    const std::string back = train(parent, "--steps 3 --load branch").err;
    if (*states == 0) {
      EXPECT_EQ(there + back, "");
    } else {
      EXPECT_TRUE(there.ends_with(fmt::format("lacks states, which start fresh: {}\n", states)))
          << there;
      EXPECT_TRUE(
          back.ends_with(fmt::format("another chapter, which are left aside: {}\n", states)))
          << back;
    }
  }
}

}  // namespace
}  // namespace ladder::test
