// --memory-limit: what does not fit is refused before anything is allocated or written, and told
// which policy fits.
#include <regex>

#include "chapters/06_checkpointing/recompute.h"
#include "tests/common/memory.h"
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class MemoryLimit : public Refusals {
 protected:
  nlohmann::json trained(const std::string& flags) const {
    return report(GetParam(), "--steps 1 " + flags);
  }
  static int64_t sum(const nlohmann::json& report) {
    int64_t sum = 0;
    for (int mem = 0; mem < kMemCount; ++mem) sum += measured(report, static_cast<Mem>(mem));
    return sum;
  }
  int64_t total(const std::string& flags) const { return sum(trained(flags)); }
  std::string refusal(const std::string& flags) const {
    const Ended ended = run(GetParam(), small_run(flags));
    EXPECT_EQ(ended.status, 2) << flags;
    return ended.err;
  }
  /// The policy that a refusal of `flags` names.
  std::string named_policy(const std::string& flags) const {
    const std::string says = refusal(flags), before = "; --recompute ";
    const size_t begin = says.find(before);
    EXPECT_NE(begin, std::string::npos) << says;
    if (begin == std::string::npos) return says;
    const size_t name = begin + before.size();
    return says.substr(name, says.find(' ', name) - name);
  }
  /// Bytes of the least plan of any policy, and of what most of it is said to be.
  struct Least {
    int64_t bytes;
    std::string most_of_it;
  };
  Least least(const std::string& flags) const {
    const std::string says = refusal(flags + limit(1));
    std::smatch match;
    const std::regex form("takes the least, ([0-9]+), most of it ([A-Za-z]+), which shrinks with");
    EXPECT_TRUE(std::regex_search(says, match, form)) << says;
    return match.empty() ? Least{} : Least{std::stoll(match[1]), match[2]};
  }
  static std::string limit(int64_t bytes) { return " --memory-limit " + std::to_string(bytes); }
};
INSTANTIATE_TEST_SUITE_P(Limit, MemoryLimit, ::testing::Values("06_checkpointing"), chapter_name);

TEST_P(MemoryLimit, NamesThePolicyOfFewestFlopsThatFits) {
  // Of 7 blocks every:2 computes six again, as full and every:3 do, and takes more memory than
  // full; every:4 computes four.
  const std::string model = "--layers 7 ";
  std::map<std::string, int64_t> bytes, flops;
  for (const std::string& policy : Recompute("none", 7).all()) {
    const auto got = trained(model + "--recompute " + policy);
    bytes[policy] = sum(got);
    flops[policy] = got["extra"]["recompute"]["flops_twice"]["measured"];
  }
  for (const auto& [policy, most] : bytes) {
    if (policy == "none") continue;
    const std::string named = named_policy(model + limit(most));
    ASSERT_TRUE(bytes.contains(named)) << policy << ": " << named;
    EXPECT_LE(bytes.at(named), most) << policy;
    EXPECT_EQ(total(model + "--recompute " + named + limit(most)), bytes.at(named)) << policy;
    for (const auto& [other, other_bytes] : bytes)
      if (other_bytes <= most) {
        EXPECT_LE(flops.at(named), flops.at(other)) << policy << ": " << other;
        if (flops.at(named) == flops.at(other)) {
          EXPECT_LE(bytes.at(named), other_bytes) << policy << ": " << other;
        }
      }
  }
}

TEST_P(MemoryLimit, NeverNamesALongerRunThatSavesNothing) {
  // The case that was named wrongly: every:2 of 5 blocks.
  const std::string model = "--layers 5 ";
  EXPECT_EQ(named_policy(model + limit(total(model + "--recompute every:2"))), "full");
}

TEST_P(MemoryLimit, IsAnUpperBoundToTheByte) {
  const int64_t least = total("--recompute full");
  trained("--recompute full" + limit(least));
  expect_refused(BadInput{
      "--recompute full" + limit(least - 1),
      fmt::format("more than --memory-limit {}, and so does every --recompute", least - 1)});
}

TEST_P(MemoryLimit, KnowsPrecisionsAndMicroBatches) {
  const std::string narrow = "--batch 16 --precision bf16 --micro-batch 4 ";
  const int64_t kept = total(narrow), full = total(narrow + "--recompute full");
  expect_refused(BadInput{narrow + limit(kept - 1), "--recompute selective:mlp takes"});
  trained(narrow + "--recompute full" + limit(full));
}

TEST_P(MemoryLimit, WhatItIsSaidToShrinkWithShrinksIt) {
  struct Case {
    std::string most, model;
    std::vector<std::string> shrunk;  // each begins with the flag that is named
  };
  const Case cases[] = {
      {"Optim", "", {"--optimizer lion", "--optimizer sgd", "--layers 4", "--channels 64"}},
      {"Param", "--model small --optimizer sgd ", {"--layers 3", "--channels 192"}},
      {"Workspace",
       "--model nano --batch 32 --micro-batch 1 ",
       {"--threads 1", "--accumulate running --threads 2", "--seq-len 8 --threads 2"}},
      {"Activation",
       "--model small --layers 1 --batch 64 ",
       {"--seq-len 128", "--micro-batch 16 --accumulate running", "--precision bf16"}}};
  for (const auto& [most, model, shrunk] : cases) {
    const std::string before = model + (most == "Workspace" ? "--threads 2" : "");
    const auto [bytes, largest] = least(before);
    EXPECT_EQ(largest, most) << model;
    for (const std::string& flags : shrunk) {
      const std::string flag = flags.substr(0, flags.find(' '));
      EXPECT_NE(refusal(before + limit(1)).find(flag), std::string::npos) << flag;
      EXPECT_LT(least(model + flags).bytes, bytes) << model << flags;
    }
  }
}

TEST_P(MemoryLimit, DoesNotAdviseWhatTheRunHas) {
  const std::string model = "--model small --layers 1 --batch 64 ", advice = "--precision bf16";
  EXPECT_NE(refusal(model + limit(1)).find(advice), std::string::npos);
  for (const std::string narrow : {"bf16", "fp16"}) {
    const std::string says = refusal(model + "--precision " + narrow + limit(1));
    EXPECT_NE(says.find("shrinks with a smaller --seq-len"), std::string::npos) << says;
    EXPECT_EQ(says.find(advice), std::string::npos) << says;
  }
}

TEST_P(MemoryLimit, IsCheckedBeforeTheTextIsRead) {
  write("empty.txt", "");
  const std::string says = refusal("--data empty.txt" + limit(1));
  EXPECT_NE(says.find("more than --memory-limit"), std::string::npos) << says;
}

TEST_P(MemoryLimit, PrintsThePlan) {
  const Ended ended = run(GetParam(), small_run(limit(1000)));
  EXPECT_EQ(ended.status, 2);
  for (const char* part : {"Activation", "Optim"})
    EXPECT_NE(ended.out.find(part), std::string::npos) << ended.out;
  EXPECT_EQ(run(GetParam(), small_run(limit(1000) + " --quiet")).out, "");
}

TEST_P(MemoryLimit, HasUnits) {
  for (const auto& [text, bytes] : {std::pair{"5MB", 5L << 20}, {"7kb", 7L << 10}, {"9", 9L}})
    expect_refused(BadInput{"--memory-limit " + std::string(text),
                            "more than --memory-limit " + std::to_string(bytes) + ","});
  for (const char* enough : {"1GB", "8TB", "7EB", "0"})
    trained("--memory-limit " + std::string(enough));
}

}  // namespace
}  // namespace ladder::test
