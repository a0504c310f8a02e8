// --loads: a run's loads are read from its report and put on the clock.

#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class Replay : public Programs {
 protected:
  /// A report with these loads, as JSON.
  void write_loads(const std::string& loads) const {
    write("run.json",
          fmt::format(R"({{"extra": {{"experts": {{"steps": {{"load": {}}}}}}}}})", loads));
  }
  Ended replay(const std::string& flags) const {
    return run("23_planner", words("--loads run.json --report replay.json " + flags));
  }
};

// Two experts of four are heavy; in the last step others than in those before.
TEST_F(Replay, IsThatOfTheClock) {
  write_loads("[[[4, 4, 1, 1]], [[4, 4, 1, 1]], [[4, 1, 4, 1]]]");
  const Ended ended = replay("--ep 2");
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(nlohmann::json::parse(read("replay.json")),
            nlohmann::json::parse(R"({"experts": [[0, 2, 1, 3]],
                                      "steps": {"aligned": [1.6, 1], "placed": [1, 1.6]}})"));
  EXPECT_EQ(ended.out,
            "time of a layer, over that with even loads, mean of the last 2 steps\n"
            "  experts in order  1.30\n  placed by load    1.30\n");
}

// Chapter 22 reports loads whatever its ranks are, and any ranks replay them.
TEST_F(Replay, ReadsWhatARunReports) {
  const nlohmann::json report =
      this->report("22_expert_parallel", "--model moe-nano --layers 2 --batch 8 --steps 3 --ep 2");
  const nlohmann::json& load = report["extra"]["experts"]["steps"]["load"];
  ASSERT_EQ(load.size(), 3u);
  EXPECT_EQ(load[2], report["extra"]["experts"]["load"]);
  write("run.json", report.dump());
  for (const std::string flags : {"--ep 2", "--ep 8 --redundant-experts 8", "--ep 1"}) {
    const Ended ended = replay(flags);
    ASSERT_EQ(ended.status, 0) << flags << ended.err;
    const auto steps = nlohmann::json::parse(read("replay.json"))["steps"];
    for (const char* of : {"aligned", "placed"}) {
      ASSERT_EQ(steps[of].size(), 2u);
      for (const double time : steps[of]) EXPECT_TRUE(flags == "--ep 1" ? time == 1 : time >= 1);
    }
  }
}

TEST_F(Replay, Refuses) {
  write("replay.json", "old");
  const std::string ended_badly = "--loads run.json: no loads of experts; legal is the --report of";
  for (const std::string loads : {"[[[1, 2]]]", "[[[1, 2]], [[1, 2, 3]]]", "[[[1, 2]], []]",
                                  "[[[1, 2]], [[0, 0]]]", "[[[1, 2]], [[-1, 2]]]", "[[], []]", "7",
                                  "[[[1, 2]], [[1e300, 2]]]", "[[[1, 2]], [[\"1\", 2]]]"}) {
    write_loads(loads);
    const Ended ended = replay("--ep 1");
    EXPECT_EQ(ended.status, 2) << loads;
    EXPECT_NE(ended.err.find(ended_badly), std::string::npos) << loads << ended.err;
  }
  for (const char* text : {"", "{", "[]", R"({"extra": {}})"}) {
    write("run.json", text);
    EXPECT_NE(replay("--ep 1").err.find(ended_badly), std::string::npos) << text;
  }
  write_loads("[[[1, 2, 3, 4]], [[1, 2, 3, 4]]]");
  for (const auto& [flags, says] :
       {std::pair{"", "--loads wants --ep, which must divide 4 experts, not 0"},
        {"--ep 3", "which must divide 4 experts, not 3"},
        {"--ep 2 --redundant-experts 1", "a multiple of 2 ranks from 0 to 4"},
        {"--ep 2 --redundant-experts -2", "a multiple of 2 ranks from 0 to 4"},
        {"--ep 2 --redundant-experts 9223372036854775806", "which is each expert on each rank"},
        {"--ep 2 --expert-nodes 3", "--expert-nodes must divide 2 ranks, not 3"},
        {"--ep 2 --expert-groups 0", "--expert-groups must divide 4 experts, not 0"}}) {
    const Ended ended = replay(flags);
    EXPECT_EQ(ended.status, 2) << flags;
    EXPECT_NE(ended.err.find(says), std::string::npos) << flags << "\n" << ended.err;
  }
  for (const auto& [flags, says] :
       {std::pair{"--expert-nodes 2", "are for --loads"},
        {"--loads no.json", "no.json"},
        {"--loads run.json --report run.json", "would write in --loads run.json"}}) {
    const Ended ended = run("23_planner", words(flags));
    EXPECT_EQ(ended.status, 2);
    EXPECT_NE(ended.err.find(says), std::string::npos) << ended.err;
  }
  EXPECT_EQ(read("replay.json"), "old");
}

}  // namespace
}  // namespace ladder::test
