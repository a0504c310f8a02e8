// --plan-only of chapter 13: a plan without text and ranks, and the numbers of a run.
#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "kernels/arena.h"
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class PlanOnly : public Programs {
 protected:
  Ended plan(const std::string& flags) const {
    return run("13_3d_parallel", words("--plan-only " + flags));
  }
  /// The cells of each stage in the table of that title.
  static std::vector<std::vector<std::string>> table(const std::string& text,
                                                     const std::string& title) {
    std::istringstream lines(
        text.substr(std::min(text.size(), text.find("\n  " + title + " ") + 1)));
    std::string line;
    std::getline(lines, line);
    std::vector<std::vector<std::string>> stages;
    while (std::getline(lines, line) && line.starts_with("  stage")) {
      std::vector<std::string> row = words(line);  // "stage 2 ...", or "stages 2 to 5 ..."
      const bool many = row[0] == "stages";
      const int begin = std::stoi(row[1]), end = std::stoi(row[many ? 3 : 1]);
      row.erase(row.begin(), row.begin() + (many ? 4 : 2));
      EXPECT_EQ(std::ssize(stages), begin);
      stages.insert(stages.end(), static_cast<size_t>(end + 1 - begin), row);
    }
    return stages;
  }
  static std::string mib(int64_t bytes) {
    return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20));
  }
};

const std::string kGpt3 =
    "--world 1024 --model gpt3-175b --tp 8 --pp 16 --batch 1024 --micro-batch 1 --precision bf16 "
    "--sequence-parallel --recompute selective";

TEST_F(PlanOnly, OfAThousandRanks) {
  const Ended ended = plan(kGpt3);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  for (const std::string says :
       {"tp 8 x dp 8 x pp 16 = 1024 ranks", "96 layers, 6 on each stage", "stages 1 to 14",
        "1016-1023", "1f1b, 128 micro-batches: stages wait 10.5%"})
    EXPECT_NE(ended.out.find(says), std::string::npos) << says << "\n" << ended.out;
}

// 6 layers of 12 C^2 + 13 C numbers, an eighth of each but of 6 C, in 16 bits.
TEST_F(PlanOnly, IsWhatTheFormulaSays) {
  const std::string out = plan(kGpt3).out;
  const int64_t C = 12288, P = 6 * (12 * C * C / 8 + (3 * C + 4 * C) / 8 + 6 * C);
  const auto gib = [](int64_t bytes) {
    return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 30));
  };
  const auto memory = table(out, "memory"), sent = table(out, "sent in a step");
  ASSERT_EQ(memory.size(), 16U) << out;
  ASSERT_EQ(sent.size(), 16U) << out;
  for (size_t s = 1; s < 15; ++s) {
    EXPECT_EQ(memory[s].at(0), gib(2 * P));
    EXPECT_EQ(memory[s].at(4), gib(4 * P));
    EXPECT_EQ(memory[s].at(6), gib(8 * P / 8));
    EXPECT_EQ(sent[s].at(2), gib(6 * P / 8 * 7));
    EXPECT_EQ(sent[s].at(4), gib(2 * 128 * 2 * 2048 * C / 8));
  }
}

// Table 1 of arXiv 2104.04473: a step of them all is more than 2^63 operations, that of a rank not.
// Their batches suit no tree.
TEST_F(PlanOnly, OfTheLargestModelsThatPeopleTrain) {
  for (const std::string flags :
       {"--world 1920 --pp 15 --layers 90 --channels 16384 --heads 128 --batch 2304",
        "--world 2520 --pp 35 --layers 105 --channels 20480 --heads 128 --batch 2520",
        "--world 3072 --pp 64 --layers 128 --channels 25600 --heads 160 --batch 3072"}) {
    if (kSanitized && !flags.starts_with("--world 1920")) continue;  // a minute each
    const Ended ended =
        plan("--model gpt3-175b --tp 8 --micro-batch 1 --precision bf16 --reduction ring " + flags);
    EXPECT_EQ(ended.status, 0) << flags << "\n" << ended.err;
  }
}

TEST_F(PlanOnly, WritesAReport) {
  const std::string flags = "--model nano --batch 8 --steps 1 --threads 1 --tp 2 --dp 2 --pp 2 ";
  const Ended ended = plan(flags + "--quiet --report plan.json");
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.out, "");
  const auto planned = nlohmann::json::parse(read("plan.json"));
  const auto ran = report("13_3d_parallel", flags);
  ASSERT_EQ(planned["memory"].size(), 2U) << "a rank of each stage";
  for (size_t stage = 0; stage < 2; ++stage) {
    const size_t rank = planned["memory"][stage]["rank"];
    for (const char* axis : {"tp", "dp", "pp"})
      EXPECT_EQ(planned["extra"]["traffic"][stage][axis]["predicted"],
                ran["extra"]["traffic"][rank][axis]["predicted"]);
  }
  EXPECT_EQ(plan(flags + "--report no/such/plan.json").status, 2);
}

TEST_F(PlanOnly, HasTheNumbersOfTheRun) {
  for (const std::string flags :
       {"--tp 2 --dp 2 --pp 2 --micro-batch 1", "--dp 2 --pp 4 --precision bf16 --recompute full",
        "--tp 4 --pp 2 --sequence-parallel --pipeline zb-h1 --micro-batch 2"}) {
    const std::string all = "--model nano --batch 8 --steps 1 --threads 1 " + flags;
    const Ended planned = plan(all);
    ASSERT_EQ(planned.status, 0) << planned.err;
    const auto got = report("13_3d_parallel", all);
    const int ranks = got["layout"]["ranks"], pp = got["layout"]["pp"];
    const auto memory = table(planned.out, "memory"), sent = table(planned.out, "sent in a step");
    ASSERT_EQ(std::ssize(memory), pp) << planned.out;
    ASSERT_EQ(std::ssize(sent), pp) << planned.out;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto &of_rank = got["memory"][static_cast<size_t>(rank)],
                 &axes = got["extra"]["traffic"][static_cast<size_t>(rank)];
      std::vector<std::string> holds, sends;
      int64_t sum = 0;
      for (const std::string_view name : kMemNames) {
        const int64_t bytes = of_rank[std::string(name)]["measured"];
        sum += bytes;
        if (bytes > 0) holds.insert(holds.end(), {mib(bytes), "MiB"});
      }
      holds.insert(holds.end(), {mib(sum), "MiB"});
      for (const char* axis : {"tp", "dp", "pp"})
        sends.insert(sends.end(), {mib(axes[axis]["measured"]), "MiB"});
      const auto stage = static_cast<size_t>(rank / (ranks / pp));
      EXPECT_EQ(memory[stage], holds) << flags << " " << rank;
      EXPECT_EQ(sent[stage], sends) << flags << " " << rank;
    }
  }
}

// A run shows the same plan before it begins.
TEST_F(PlanOnly, IsWhatARunShows) {
  const std::string flags = "--model nano --batch 8 --tp 2 --dp 2 --pp 2 --steps 1 --threads 1";
  const std::string planned = plan(flags).out;
  EXPECT_NE(train("13_3d_parallel", flags).out.find(planned.substr(0, planned.size() - 1)),
            std::string::npos)
      << planned;
}

// A table of positions is as long as --seq-len, but in a plan.
TEST_F(PlanOnly, OfSequencesLongerThanThePreset) {
  const Ended ended = plan("--model nano --seq-len 4096");
  EXPECT_EQ(ended.status, 0) << ended.err;
}

}  // namespace
}  // namespace ladder::test
