// 29_monitor: a run that goes back has the bits of one that skips the same batches.
#include "chapters/29_monitor/rewind.h"

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

TEST(BatchNumbers, JumpOverRanges) {
  BatchNumbers numbers({.skip = {"3:5", "8:9", "5:6"}});
  std::vector<int64_t> all;
  for (int64_t step = 0; step < 7; ++step) all.push_back(numbers.advance_to(step));
  EXPECT_EQ(all, (std::vector<int64_t>{0, 1, 2, 6, 7, 9, 10}));
  BatchNumbers restored({});
  restored.set_state(nlohmann::json::parse(numbers.state().dump()));
  EXPECT_EQ(restored.advance_to(7), 11);
  // A range that is yet to come is in the checkpoint.
  BatchNumbers early({.skip = {"3:5"}}), late({});
  late.set_state(early.state());
  late.set_state(early.state());
  EXPECT_EQ(late.advance_to(3), 5);
  EXPECT_EQ(late.state()["ranges"].size(), 1U);
}

TEST(Rewinds, ARangeDoesNotReachBehindTheCheckpoint) {
  const Rewinds rewinds({.around = 2});
  EXPECT_EQ(rewinds.around(10, 6), (Range{8, 13}));
  EXPECT_EQ(rewinds.around(10, 9), (Range{9, 13}));
}

TEST(Rewinds, ThreeTimesMustDo) {
  Rewinds rewinds({.around = 0});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(rewinds.count(20));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(rewinds.count(24));
  EXPECT_FALSE(rewinds.count(24));
}

class RewindRuns : public SameTrace {
 protected:
  const std::string flags =
      "--layers 2 --channels 32 --heads 2 --batch 8 --bad-batch 60 --alarms --quiet ";
  const std::string back = flags + "--rewind 1 --save saved --save-every 16 ";
  /// The lines of the last time that each step was taken.
  std::map<int64_t, std::string> last_of_each_step(const std::string& name) const {
    std::map<int64_t, std::string> all;
    for (const TraceStep& step : parse_trace(read(name)))
      all[step.step] = step.loss + step.grad_norm + step.lr + step.param_hash;
    return all;
  }
};

TEST_F(RewindRuns, HaveTheBitsOfSkippedBatches) {
  const auto extra =
      report("29_monitor", back + "--steps 70 --lr 3e-3 --trace back --ranks 2")["extra"];
  ASSERT_EQ(extra["rewinds"].size(), 1U) << extra;
  EXPECT_EQ(extra["rewinds"][0]["step"], 60);
  EXPECT_EQ(extra["rewinds"][0]["to"], 48);
  EXPECT_EQ(extra["rewinds"][0]["skip_batches"], "59:62");
  EXPECT_EQ(extra["alarms"][0]["kind"], "spike");

  train("29_monitor", flags + "--lr 3e-3 --steps 48 --save there --trace there.jsonl");
  train("29_monitor",
        flags + "--lr 3e-3 --steps 70 --load there --skip-batches 59:62 --trace skip --save end");
  const auto there = last_of_each_step("back"), skip = last_of_each_step("skip");
  ASSERT_EQ(skip.size(), 22U);
  for (const auto& [step, line] : skip) EXPECT_EQ(there.at(step), line) << step;
  // Weights, states and what is skipped: files with the same bytes.
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_TRUE(read(std::string("saved/current/") + file) ==
                read(std::string("end/current/") + file))
        << file;
  EXPECT_EQ(nlohmann::json::parse(read("saved/current/checkpoint.json"))["state"],
            nlohmann::json::parse(read("end/current/checkpoint.json"))["state"]);
  // The bad batch is the fault; a run without it hears nothing.
  train("29_monitor",
        flags + "--lr 3e-3 --steps 70 --load there --skip-batches 65:66 --trace other");
  EXPECT_NE(last_of_each_step("other"), skip);
}

TEST_F(RewindRuns, GoOnWithWhatIsSkipped) {
  train("29_monitor", flags + "--lr 3e-3 --steps 70 --skip-batches 3:5,20:21 --trace whole");
  train("29_monitor", flags + "--lr 3e-3 --skip-batches 3:5,20:21 --steps 10 --save half");
  train("29_monitor", flags + "--lr 3e-3 --steps 70 --load half --ranks 4 --trace rest");
  const auto whole = last_of_each_step("whole"), rest = last_of_each_step("rest");
  ASSERT_EQ(rest.size(), 60U);
  for (const auto& [step, line] : rest) EXPECT_EQ(whole.at(step), line) << step;
}

TEST_F(RewindRuns, ThatDoNotHelpEnd) {
  const Ended ended =
      run("29_monitor", small_run(back + "--steps 70 --plant rate:20 --lr 0.3 --ranks 2 "
                                         "--trace trace --report report"));
  EXPECT_EQ(ended.status, 3);
  EXPECT_NE(ended.err.find("3 times back to step"), std::string::npos) << ended.err;
  EXPECT_FALSE(std::filesystem::exists(path("trace.partial")));
  EXPECT_GT(parse_trace(read("trace")).size(), 20U);
  const auto report = nlohmann::json::parse(read("report"));
  EXPECT_EQ(report["extra"]["rewinds"].size(), 3U);
  EXPECT_NE(report["not_done"].get<std::string>().find("3 times back"), std::string::npos);
}

}  // namespace
}  // namespace ladder::test
