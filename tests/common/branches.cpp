// Branches: they have the flags of a table, all other programs refuse these flags and name the
// branch, and checkpoints go from a branch to its parent and back.
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
  std::string help_of(const std::string& chapter, const std::string& flag) const {
    const std::string all = run(chapter, {"--help"}).out;
    const size_t begin = all.find("  " + flag + " ");
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
  for (const auto& [chapter, adds] : branches())
    for (const std::string& added : adds) {
      if (!has(all, chapter)) continue;
      const std::string help = help_of(chapter, words(added)[0]);
      EXPECT_NE(help, "") << added << " is none of " << chapter;
      EXPECT_NE(help.find(words(added).back()), help.npos) << added << " in\n" << help;
    }
}

TEST_F(Branches, HaveNoFlagThatIsNotInTheTable) {
  std::set<std::string> known;
  for (const Branch& branch : branches()) known.insert(branch.adds.begin(), branch.adds.end());
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
  for (const auto& [branch, adds] : branches()) {
    if (!has(all, branch)) continue;
    const std::vector<std::string> those = chapters_from(branch);
    for (const std::string& chapter : some_chapters_from("01_sgd"))
      for (const std::string& added : adds) {
        const bool is_value = words(added).size() == 2;
        // A chapter without the flag does not know its values, either.
        if (has(those, chapter) || (is_value && help_of(chapter, words(added)[0]).empty()))
          continue;
        const Ended ended = run(chapter, small_run(is_value ? added : added + " 1"));
        EXPECT_EQ(ended.status, 2) << chapter << " " << added;
        const std::string legal = is_value ? "; legal here are " : "\n";
        EXPECT_TRUE(ended.err.starts_with("error: " + branch_of(added) + legal)) << ended.err;
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
                                   {"36_finetune", "07_ddp", "documents"},
                                   {"29_monitor", "08_zero1", "batches, detectors, spike_guard"},
                                   {"32_optimizers", "08_zero1", ""}};

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
