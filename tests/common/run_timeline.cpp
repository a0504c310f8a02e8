// --timeline: what threads beside a rank record, and the file.

#include "common/run/log.h"
#include "common/run/timeline.h"
#include "tests/common/comm/late_device.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

using nlohmann::json;

class Timeline : public testing::Test {
 protected:
  Timeline() { options_.timeline = dir_ / "timeline"; }

  static RunPlan plan() {
    return {.chapter = "01_sgd",
            .gpt = preset("nano"),
            .layout = {.mesh = {}, .batch = 16, .micro_batch = 4},
            .predicted = {}};
  }

  TempDir dir_;
  RunOptions options_;
  Arena arena_;
  Ctx ctx_, beside_;
  std::vector<Event> events_;  // of the thread beside
};

// Memory has an end. What works beside the rank does not go on to record, either: not in later
// steps, and not between them.
TEST_F(Timeline, IsFullForAllRowsAtOnce) {
  testing::internal::CaptureStdout();
  {
    RunLog log(options_, plan(), arena_, ctx_);
    log.record_beside(beside_, events_);
    for (int64_t step = 0; step < 2; ++step) {
      log.begin_step();
      EXPECT_EQ(ctx_.events != nullptr, step == 0);
      EXPECT_EQ(beside_.events, step == 0 ? &events_ : nullptr);
      if (ctx_.events) ctx_.events->resize(kMaxEvents, {"work", 0, 1});
      log.end_step({.step = step, .loss = 1, .grad_norm = 1, .lr = 1, .tokens = 1});
      EXPECT_EQ(beside_.events, nullptr);
    }
  }
  EXPECT_NE(testing::internal::GetCapturedStdout().find("events and ends here"), std::string::npos);
}

// Where a rank fails in a step, the thread beside it may still record.
TEST_F(Timeline, RowsBesideOutliveTheLog) {
  testing::internal::CaptureStdout();
  {
    RunLog log(options_, plan(), arena_, ctx_);
    log.record_beside(beside_, events_);
    log.begin_step();
  }
  EXPECT_EQ(ctx_.events, nullptr);
  { const Span span(beside_, "late"); }
  EXPECT_EQ(events_.size(), 1u);
  testing::internal::GetCapturedStdout();
}

TEST(Span, IsNotChargedWithWhatWasQueuedBefore) {
  test::LateDevice device;
  std::vector<Event> events;
  Ctx ctx;
  ctx.device = &device;
  ctx.events = &events;
  int64_t done = 0;
  device.queue([&] { done = now_ns(); });
  { const Span span(ctx, "work"); }
  ASSERT_EQ(events.size(), 1u);
  EXPECT_GE(events[0].begin_ns, done);
  EXPECT_GT(done, 0);
}

TEST_F(Timeline, RowsOfAllRanksInMicroseconds) {
  const std::vector<Event> a = {{"a", 5000, 7500}}, b = {{"b", 6000, 6001}};
  const std::vector<StepStart> steps = {{7, 5000}, {8, 5500}};
  const auto rank = [&](const std::vector<TimelineRow>& rows) { return rows_json(rows, steps); };
  const std::vector<json> ranks = {rank({{"rank 0", a}}),
                                   rank({{"rank 1", b}, {"rank 1, beside", {}}})};
  const json events = json::parse(timeline_json(ranks))["traceEvents"];
  std::vector<json> expected;
  for (const char* text :
       {R"({"name":"process_name","ph":"M","pid":1,"tid":1,"args":{"name":"rank 0"}})",
        R"({"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"rank 0"}})",
        R"({"name":"a","ph":"X","pid":1,"tid":1,"ts":0.0,"dur":2.5,"args":{"step":7}})",
        R"({"name":"process_name","ph":"M","pid":2,"tid":2,"args":{"name":"rank 1"}})",
        R"({"name":"thread_name","ph":"M","pid":2,"tid":2,"args":{"name":"rank 1"}})",
        R"({"name":"b","ph":"X","pid":2,"tid":2,"ts":1.0,"dur":0.001,"args":{"step":8}})",
        R"({"name":"thread_name","ph":"M","pid":2,"tid":3,"args":{"name":"rank 1, beside"}})"})
    expected.push_back(json::parse(text));
  EXPECT_EQ(events, json(expected));
  EXPECT_TRUE(json::parse(timeline_json({}))["traceEvents"].empty());
}

}  // namespace
}  // namespace ladder
