// The search: what it ranks, what it refuses, and what its program writes.
#include "chapters/23_planner/search.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/input_file.h"
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

const std::string k70B = "--model llama3-70b --gpus 512 --device h100 --batch 1024 --seq-len 8192";

class Planner : public Programs {
 protected:
  Ended plan(const std::string& flags) const { return run("23_planner", words(flags)); }
  nlohmann::json planned(const std::string& flags) const {
    const Ended ended = plan(flags + " --report plan.json");
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(ended.err, "");
    return nlohmann::json::parse(read("plan.json"));
  }
  /// The file of the H100 with another memory, of which tensors may take all.
  static std::string device(double gigabytes) {
    std::string text = read_small_file(LADDER_DEVICES "/h100.toml", 1 << 16);
    for (const auto& [from, to] :
         {std::pair{"gigabytes = 80", fmt::format("gigabytes = {}", gigabytes)},
          {"usable = 0.95", "usable = 1"}})
      text.replace(text.find(from), std::string_view(from).size(), to);
    return text;
  }
};

TEST_F(Planner, RanksByTime) {
  const auto report = planned(k70B);
  const auto& layouts = report["layouts"];
  ASSERT_GT(layouts.size(), 100U);
  for (size_t i = 0; i < layouts.size(); ++i) {
    const auto& l = layouts[i];
    if (i >= 1) {
      EXPECT_LE(layouts[i - 1]["step_seconds"], l["step_seconds"]);
    }
    EXPECT_LE(l["bytes"], report["room"]);
    EXPECT_TRUE(l.contains("ep"));
    EXPECT_EQ(l["tp"].get<int>() * l["pp"].get<int>() * l["dp"].get<int>() * l["cp"].get<int>(),
              512);
    EXPECT_GT(l["mfu"], i < 100 ? 0.05 : 0);
    EXPECT_LT(l["hfu"], 0.75);
    double sum = 0;
    for (const auto& [term, seconds] : l["seconds"].items()) {
      EXPECT_GE(seconds, -1e-9) << term << " " << l;
      sum += seconds.get<double>();
    }
    EXPECT_NEAR(sum, l["step_seconds"], 1e-9 * sum);
  }
}

// Each of these was slower, or had no legal layout, when what is given was given.
TEST_F(Planner, WhatIsGivenIsNotFasterThanTheFastest) {
  for (const auto& [question, given] :
       {std::pair<std::string, std::string>{
            "--model mixtral-8x7b --seq-len 4096 --gpus 1024 --batch 64", "--cp 8"},
        {"--model like-deepseek-v3 --gpus 2048 --batch 15360 --seq-len 4096", "--cp 2"},
        {"--model llama2-7b --gpus 64 --batch 1024 --seq-len 8192", "--recompute selective:mlp"},
        {"--model llama3-70b --gpus 512 --batch 64 --seq-len 131072",
         "--schedule interleaved --chunks 10"},
        {"--model gpt2-1558m --gpus 8 --batch 1024", "--micro-batch 16"}}) {
    const auto fastest = planned(question)["layouts"][0],
               other = planned(question + " " + given)["layouts"][0];
    EXPECT_LE(fastest["step_seconds"], other["step_seconds"]) << given << "\n" << fastest;
  }
  const auto mixtral = planned("--model mixtral-8x7b --seq-len 4096 --gpus 1024 --batch 64");
  EXPECT_LT(mixtral["layouts"][0]["step_seconds"], 0.11);
}

// Attention is computed again under `selective`, and is not under `selective:mlp`. If one segment
// has all blocks and nothing comes between forward and backward, nothing is.
TEST_F(Planner, HfuCountsWhatIsComputedAgain) {
  const auto hfu_of_mfu = [&](const std::string& policy, const std::string& question = k70B) {
    const auto first = planned(question + " --recompute " + policy)["layouts"][0];
    return first["hfu"].get<double>() / first["mfu"].get<double>();
  };
  EXPECT_EQ(hfu_of_mfu("none"), 1);
  EXPECT_EQ(hfu_of_mfu("selective:mlp"), 1);
  EXPECT_GT(hfu_of_mfu("selective"), 1);
  EXPECT_GT(hfu_of_mfu("full"), hfu_of_mfu("selective"));
  EXPECT_EQ(hfu_of_mfu("every:8", "--model nano --gpus 1 --batch 4"), 1);
}

TEST_F(Planner, SaysWhatItLeftOut) {
  const auto report = planned(k70B);
  const int64_t left_out = report["too_large"].get<int64_t>() + report["beaten"].get<int64_t>() +
                           report["too_slow"].get<int64_t>();
  EXPECT_EQ(std::ssize(report["layouts"]) + left_out, report["legal"]);
  EXPECT_GT(report["legal"], 100000);
  const Ended ended = plan(k70B);
  for (const char* part : {"legal", "too_large", "beaten", "too_slow"})
    EXPECT_NE(ended.out.find(report[part].dump()), std::string::npos) << part << "\n" << ended.out;
}

// A given layout that the search finds by itself has the same numbers.
TEST_F(Planner, OneLayoutIsThatOfTheSearch) {
  const auto first = planned(k70B)["layouts"][0];
  std::string flags = k70B;
  for (const char* field : {"tp", "pp", "dp", "cp", "zero", "chunks"})
    flags += " --" + std::string(field) + " " + first[field].dump();
  for (const char* field : {"recompute", "schedule"})
    flags += " --" + std::string(field) + " " + first[field].get<std::string>();
  const auto report = planned(flags + " --micro-batch " + first["micro_batch"].dump());
  ASSERT_EQ(report["layouts"].size(), 1U);
  EXPECT_EQ(report["layouts"][0], first);
}

TEST_F(Planner, ARefusalNamesTheSmallestPlan) {
  // 7 B on one device: 18 bytes a parameter are 113 GiB.
  const Ended one = plan("--model llama2-7b --gpus 1 --batch 8 --device h100");
  EXPECT_EQ(one.status, 2);
  EXPECT_EQ(std::ranges::count(one.err, '\n'), 1) << one.err;
  const size_t at = one.err.find("the least takes ");
  ASSERT_NE(at, std::string::npos) << one.err;
  // A device of its size, of which tensors may take all, fits it; a smaller one does not.
  const double least = std::stod(one.err.substr(at + 16)) * 1.073741824;
  for (const auto& [gigabytes, status] : {std::pair{least + 0.1, 0}, {least - 0.1, 2}}) {
    write("own.toml", device(gigabytes));
    EXPECT_EQ(plan("--model llama2-7b --gpus 1 --batch 8 --device own.toml").status, status);
  }
}

// NCCL's buffers are left: the fastest of 70B without a reserve takes what they want.
TEST_F(Planner, TheReserveIsLeft) {
  const auto all = planned(k70B + " --reserve 0"), left = planned(k70B);
  constexpr int64_t kGiB = 1 << 30;
  EXPECT_EQ(left["room"].get<int64_t>(), all["room"].get<int64_t>() - 2 * kGiB);
  EXPECT_GT(all["layouts"][0]["bytes"], left["room"]);
  EXPECT_LE(left["layouts"][0]["bytes"], left["room"]);
  EXPECT_GE(left["layouts"][0]["step_seconds"], all["layouts"][0]["step_seconds"]);
  EXPECT_NE(plan(k70B).out.find("less 2.0 GiB for NCCL: --reserve"), std::string::npos);
  // One device has nobody to talk to.
  const std::string one = "--model gpt2-124m --gpus 1 --batch 8";
  EXPECT_EQ(planned(one), planned(one + " --reserve 0"));
}

TEST_F(Planner, SpendsABudget) {
  const Ended ended = plan("--compute 5.76e23");
  EXPECT_EQ(ended.status, 0) << ended.err;
  for (const char* says : {"18.4", "92.6", "6.7e+10", "Kaplan", "Chinchilla 1"})
    EXPECT_NE(ended.out.find(says), std::string::npos) << says << "\n" << ended.out;
  const Ended used = plan("--compute 5.76e23 --inference-tokens 1e13");
  EXPECT_TRUE(used.out.starts_with(ended.out)) << used.out;
  EXPECT_NE(used.out.find("109.4"), std::string::npos) << used.out;
}

}  // namespace
}  // namespace ladder::test
