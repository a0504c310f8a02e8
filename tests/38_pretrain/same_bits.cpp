// 38_pretrain: all ideas at once have the bits of one rank; what skips batches skips rows of the
// order; and the two mistakes of merging are seen. One idea alone: ../layouts.txt.
#include "tests/26_packing/document_pair.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class Pretrain : public SameTraceSmall {
 protected:
  static constexpr const char* kChapter = "38_pretrain";
  const std::string files = "--data c.bin --tokens uint16 --documents --pack-window 8 --batch 8 ",
                    order = files + "--sources a.bin:3,b.bin:1 ",
                    all = order + "--eval-every 2 --alarms --watch-every 1 ";

  Pretrain() {
    for (const auto& [name, count] : {std::pair{"a.bin", 90U}, {"b.bin", 40U}, {"c.bin", 21U}})
      write_documents(path(name), some_documents(count));
  }
  /// What a run leaves: its trace, its curves and its weights.
  struct Left {
    Trace trace;
    std::string curves, weights;
  };
  Left left(const std::string& layout) const {
    std::filesystem::remove_all(path("events"));
    std::filesystem::remove_all(path("saved"));
    const Trace steps = trace(
        kChapter, all + "--event-clock step --events events --save saved --save-every 2 " + layout);
    return {steps, read("events/events.out.tfevents.000001.ladder"),
            read("saved/current/model.safetensors")};
  }
};

TEST_F(Pretrain, AllIdeasAtOnceHaveTheBitsOfOneRank) {
  const Left one = left("");
  EXPECT_GT(one.curves.size(), 10'000U);
  for (const std::string layout :
       {"--ranks 4 --replicas 2 --micro-batch 1 --async", "--ranks 8 --replicas 4 --async",
        "--ranks 4 --micro-batch 2 --recompute full", "--ranks 2 --replicas 2 --micro-batch 1"}) {
    const Left many = left(layout);
    EXPECT_TRUE(same_trace(one.trace, many.trace)) << layout;
    EXPECT_TRUE(one.curves == many.curves) << layout;  // norms of every tensor among them
    EXPECT_TRUE(one.weights == many.weights) << layout;
  }
}

// The run goes back over rows that it has read, and those around the bad batch are dropped.
TEST_F(Pretrain, ARewindSkipsRowsOfTheOrder) {
  const std::string flags =
      "--documents --end-of-text 10 --pack-window 8 --sources text.txt:3,text.txt:1 --batch 8 "
      "--layers 2 --channels 32 --heads 2 --lr 3e-3 --bad-batch 44 --alarms --quiet ";
  const auto extra =
      report(kChapter, flags +
                           "--rewind 1 --save saved --save-every 8 --async "
                           "--steps 52 --ranks 4 --replicas 2 --trace back")["extra"];
  ASSERT_EQ(extra["rewinds"].size(), 1U) << extra;
  EXPECT_EQ(extra["rewinds"][0]["to"], 40);
  EXPECT_EQ(extra["rewinds"][0]["skip_batches"], "43:46");
  train(kChapter, flags + "--steps 40 --save there");
  train(kChapter, flags + "--steps 52 --load there --skip-batches 43:46 --trace skip --save end");
  const std::vector<TraceStep> back = parse_trace(read("back")), skip = parse_trace(read("skip"));
  ASSERT_EQ(skip.size(), 12U);
  EXPECT_EQ(back.back().param_hash, skip.back().param_hash);
  // Without the skip the last weights are others.
  train(kChapter, flags + "--steps 52 --load there --trace not_skipped");
  EXPECT_NE(parse_trace(read("not_skipped")).back().param_hash, skip.back().param_hash);
}

TEST_F(Pretrain, TheTwoMistakesOfMergingAreSeen) {
  const std::string flags = all + "--ranks 4 --micro-batch 1 ";
  const Trace sound = trace(kChapter, flags);
  EXPECT_TRUE(same_trace(sound, trace(Program(kChapter, {LADDER_PLANTED, "none"}), flags)));
  const Trace wrong = trace(Program(kChapter, {LADDER_PLANTED, "rows"}), flags);
  EXPECT_TRUE(different_trace(sound, wrong));
  EXPECT_EQ(wrong.steps[0].loss, sound.steps[0].loss);  // the same rows, in another tree
  const Ended ended =
      run(Program(kChapter, {LADDER_PLANTED, "rounds"}), small_run(flags + "--steps 4"));
  EXPECT_EQ(ended.status, 1);
  EXPECT_NE(ended.err.find("the ranks disagree: "), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace ladder::test
