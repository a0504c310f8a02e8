// Run and its Log: what reaches the screen, --trace, --report and --timeline.
#include <cmath>
#include <limits>

#include "common/comm/failure.h"
#include "common/run/ending.h"
#include "common/run/run.h"
#include "common/run/timeline.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

using nlohmann::json;

class Running : public testing::Test {
 protected:
  Running() {
    forget_ending();  // of the tests before
    options_.steps = 3;
    options_.data = text_dir_ / "text";
    write_file(options_.data, std::string(400, 'x'));
    options_.trace = dir_ / "trace";
    options_.report = dir_ / "report";
    options_.timeline = dir_ / "timeline";
    arena_.alloc(Mem::Param, "params", Dtype::F32, {10});
  }

  RunPlan plan() const {
    RunPlan plan{.chapter = "01_sgd",
                 .gpt = preset("nano"),
                 .layout = run_layout(options_, /*micro_batch=*/4),
                 .predicted = {}};
    plan.predicted[Mem::Param] = 40;
    return plan;
  }

  static StepRecord record(int64_t step, float loss = 2, double norm = 1) {
    return {.step = step, .loss = loss, .grad_norm = norm, .lr = 1, .tokens = 1};
  }
  static void take(ladder::Run& run, const StepRecord& step) {
    run.begin_step();
    run.end_step(step);
  }

  /// A run of options_.steps steps with this loss. Returns what it printed.
  std::string run(float loss) {
    testing::internal::CaptureStdout();
    {
      ladder::Run run(options_, plan(), arena_, ctx_);
      for (int64_t step = 0; step < options_.steps; ++step) {
        run.begin_step();
        { const Span span(ctx_, "work"); }
        const StepRecord record{
            .step = step, .loss = loss, .grad_norm = 0.1, .lr = 1e-3f, .tokens = 256};
        run.end_step(record);
        { const Span span(ctx_, "between steps"); }
        if (run.tracing()) run.log.trace(record, 0xABCu + static_cast<uint64_t>(step));
        if (run.eval_due(step)) run.log.eval(step, 2.5);
      }
      run.log.note("a note");
      run.log.extra()["noise"] = 3;
      run.finish(1.5);
      run.log.sample("some\x1btext\xc2\x9b, \xc3\xa4");
    }
    return testing::internal::GetCapturedStdout();
  }

  TempDir dir_, text_dir_;
  RunOptions options_;
  Arena arena_;
  Ctx ctx_, beside_;
  std::vector<Event> events_;  ///< of the thread beside
};

TEST_F(Running, TraceGrowsALineAtATime) {  // so that other programs can read it
  options_.quiet = true;
  ladder::Run run(options_, plan(), arena_, ctx_);
  std::string lines;
  for (int64_t step = 0; run.goes_on(step); ++step) {
    take(run, record(step));
    run.log.trace(record(step), 1);
    lines += trace_line(record(step), 1);
    EXPECT_EQ(read_file(options_.trace + ".partial"), lines);
  }
  EXPECT_EQ(read_file(options_.trace), lines) << "complete before the last validation";
}

TEST_F(Running, TimelineShowsStepsAlone) {
  run(2);
  const json events = json::parse(read_file(options_.timeline))["traceEvents"];
  int work = 0, steps = 0;
  for (const json& event : events) {
    EXPECT_NE(event["name"], "between steps");
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["ts"], 0);
    EXPECT_GE(event["dur"], 0);
    work += event["name"] == "work";
    steps += event["name"] == "step";
  }
  EXPECT_EQ(work, 3);
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(ctx_.events, nullptr);
}

// Memory has an end. What works beside the rank does not go on to record, either: not in later
// steps, and not between them.
TEST_F(Running, TimelineOfAThreadBeside) {
  testing::internal::CaptureStdout();
  {
    ladder::Run run(options_, plan(), arena_, ctx_);
    run.log.record_beside(beside_, events_);
    for (int64_t step = 0; step < 2; ++step) {
      run.begin_step();
      EXPECT_EQ(ctx_.events != nullptr, step == 0);
      EXPECT_EQ(beside_.events, step == 0 ? &events_ : nullptr);
      if (ctx_.events) ctx_.events->resize(kMaxEvents, {"work", 0, 1});
      run.end_step(record(step));
      EXPECT_EQ(beside_.events, nullptr);
    }
  }
  EXPECT_NE(testing::internal::GetCapturedStdout().find("events and ends here"), std::string::npos);

  // Where a rank fails in a step, the thread beside it may still record.
  options_.quiet = true;
  events_.clear();
  {
    ladder::Run run(options_, plan(), arena_, ctx_);
    run.log.record_beside(beside_, events_);
    run.begin_step();
  }
  EXPECT_EQ(ctx_.events, nullptr);
  { const Span span(beside_, "late"); }
  EXPECT_EQ(events_.size(), 1u);
}

TEST_F(Running, NanIsShownAndReported) {
  const std::string screen = run(-NAN);  // as x86 computes it
  EXPECT_NE(screen.find("loss nan"), std::string::npos);
  EXPECT_EQ(screen.find("-nan"), std::string::npos);
  EXPECT_TRUE(json::parse(read_file(options_.report))["final_loss"].is_null());
  const std::string trace = read_file(options_.trace);
  EXPECT_EQ(json::parse(trace.substr(0, trace.find('\n')))["loss"], "nan");
}

TEST_F(Running, OldFilesSurviveARunThatFails) {
  options_.quiet = true;
  for (const std::string& path : {options_.trace, options_.report, options_.timeline})
    write_file(path, "old");
  const auto fail = [&](bool after_a_step) {
    ladder::Run run(options_, plan(), arena_, ctx_);
    after_a_step ? take(run, record(0)) : run.begin_step();
    run.log.trace(record(0), 1);
    throw std::runtime_error("now");
  };
  std::map<std::string, std::string> files = {
      {"trace", "old"}, {"report", "old"}, {"timeline", "old"}};
  EXPECT_THROW(fail(/*after_a_step=*/false), std::runtime_error);
  EXPECT_EQ(ctx_.events, nullptr);
  EXPECT_EQ(files_in(dir_.path()), files);
  // The part of a trace may show why the run failed.
  files["trace.partial"] = trace_line(record(0), 1);
  EXPECT_THROW(fail(/*after_a_step=*/true), std::runtime_error);
  EXPECT_EQ(files_in(dir_.path()), files);
}

TEST_F(Running, WhatIsNotDoneIsToldByTheStatus) {
  const auto end_of_run = [&](float loss, double val_loss) {
    forget_ending();
    options_.quiet = true;
    ladder::Run run(options_, plan(), arena_, ctx_);
    take(run, record(0, loss));
    run.save_due(options_.steps - 1);
    run.finish(val_loss);
    return ending().value_or(Failure{"", 0});
  };
  EXPECT_EQ(end_of_run(2, 1.5).status, 0);
  const std::string start = "error: the run came to its end, but ";
  EXPECT_EQ(end_of_run(2, NAN).line,
            start + "it did not train: its validation loss is NaN or infinite");
  options_.save = dir_ / "save";
  testing::internal::CaptureStderr();
  const Failure end = end_of_run(NAN, 2);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(end.status, kNotDone);
  EXPECT_EQ(end.line, start + "--save " + options_.save +
                          " has no checkpoint of step 2: the loss is NaN or infinite; it did not "
                          "train: no step had a finite loss and gradient");
}

TEST_F(Running, SaveIsDueEveryFewStepsAndAtTheEnd) {
  options_.quiet = true;
  options_.steps = 10;
  const auto due = [&](ladder::Run&& run) {
    std::vector<int64_t> steps;
    for (int64_t step = 0; step < 10; ++step)
      if (run.save_due(step)) steps.push_back(step);
    return steps;
  };
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(due(ladder::Run(options_, plan(), arena_, ctx_)), Steps{});
  options_.save = dir_ / "save";
  EXPECT_EQ(due(ladder::Run(options_, plan(), arena_, ctx_)), Steps{9});
  options_.save_every = 4;
  EXPECT_EQ(due(ladder::Run(options_, plan(), arena_, ctx_)), (Steps{3, 7, 9}));
}

TEST_F(Running, ALossThatIsNotFiniteIsNotSaved) {
  options_.save = dir_ / "save";
  options_.save_every = 2;
  options_.quiet = true;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  testing::internal::CaptureStderr();
  ladder::Run run(options_, plan(), arena_, ctx_);
  const auto due = [&](int64_t step, float loss, double norm) {
    take(run, record(step, loss, norm));
    return run.save_due(step);
  };
  EXPECT_FALSE(due(1, NAN, 1));
  EXPECT_FALSE(due(1, kInf, 1));
  EXPECT_TRUE(due(1, 2, kInf)) << "the step is skipped, the weights are good";
  EXPECT_FALSE(due(2, NAN, kInf)) << "the last step";
  const std::string screen = testing::internal::GetCapturedStderr();
  for (const std::string step : {"step 1", "step 2"})
    EXPECT_NE(screen.find(step + ": not saved, the loss is NaN or infinite; " + options_.save),
              std::string::npos)
        << screen;
}

}  // namespace
}  // namespace ladder
