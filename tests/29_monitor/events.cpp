// 29_monitor: event files of whole runs. tests/clients/test_events.py reads them with TensorBoard.
#include "tests/common/refusal.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class EventRuns : public SameTrace {
 protected:
  const std::string flags = "--layers 2 --watch-every 2 --eval-every 2 --event-clock step ";
  static constexpr const char* kFirst = "events.out.tfevents.000001.ladder";

  std::string curves(const std::string& more) const {
    std::filesystem::remove_all(path("events"));
    train("29_monitor", flags + "--batch 8 --events events --steps 4 " + more);
    return read(std::string("events/") + kFirst);
  }
};

TEST_F(EventRuns, CurvesHaveTheBytesOfOneRankOnEveryLayout) {
  const std::string one = curves("");
  EXPECT_GT(one.size(), 10'000U);
  for (const std::string layout :
       {"--ranks 2", "--ranks 4 --micro-batch 1", "--ranks 8 --ddp bucketed", "--threads 2",
        "--micro-batch 2 --recompute full", "--ranks 2 --recompute every:1"})
    EXPECT_TRUE(one == curves(layout)) << layout;
  EXPECT_FALSE(one == curves("--ranks 2 --fault skip:reduce_scatter:0"));
  EXPECT_FALSE(one == curves("--seed 2"));
}

TEST_F(EventRuns, AResumedRunWritesANextFile) {
  const std::string where = flags + "--events events ";
  train("29_monitor", where + "--steps 2 --save half");
  const std::string first = read(std::string("events/") + kFirst);
  write(std::string("events/") + kFirst, first + first.substr(0, 20));
  const Ended rest = train("29_monitor", where + "--steps 4 --load half");
  EXPECT_NE(rest.err.find("20 bytes of a torn record are cut off"), std::string::npos) << rest.err;
  EXPECT_TRUE(read(std::string("events/") + kFirst) == first);
  EXPECT_FALSE(read("events/events.out.tfevents.000002.ladder").empty());
}

// Files may have 4 kB, and a watched step takes 8.
TEST_F(EventRuns, AFullDiskDoesNotEndTheRun) {
  const Program limited("29_monitor", {"sh", "-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh"});
  must_end_with(3);
  const Ended ended = train(limited, flags + "--events events --steps 4 --trace trace");
  EXPECT_NE(ended.err.find("the run goes on without it"), std::string::npos) << ended.err;
  EXPECT_EQ(parse_trace(read("trace")).size(), 4U);
}

TEST_F(EventRuns, AFolderThatHoldsFilesIsRefused) {
  train("29_monitor", flags + "--events events --steps 2 --save half");
  const auto before = files();
  const auto refused = [&](const std::string& more, const std::string& says) {
    expect_refused("29_monitor", flags + "--events " + more, says);
  };
  refused("events", "holds files; legal are an empty directory, and --load");
  refused("half", "holds files");
  refused("events --load half --trace events/x", "would write in --events events");
  EXPECT_TRUE(files() == before);
  write("events/events.out.tfevents.9999999999999999999.x", "");
  refused("events --load half --steps 4", "no name sorts after events/events.out.tf");
}

}  // namespace
}  // namespace ladder::test
