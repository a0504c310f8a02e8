// How a run ends that no exception ends: signals, weights that are no numbers, outputs that a disk
// does not take.

#include <cmath>
#include <csignal>
#include <limits>

#include <sys/resource.h>

#include "common/run/ending.h"
#include "common/run/log.h"
#include "common/run/run_main.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

using nlohmann::json;

class Ending : public testing::Test {
 protected:
  Ending() {
    options_.steps = 4;
    options_.quiet = true;
    options_.data = dir_ / "text";
    write_file(options_.data, "text");
    options_.trace = dir_ / "trace";
    options_.report = dir_ / "report";
  }

  /// A run whose steps have these losses and norms.
  /// @param after what happens in the loop after each step
  int status_of(float loss, double norm, double val_loss,
                const std::function<void(int64_t)>& after) {
    return run_main([&] {
      const RunPlan plan{.chapter = "01_sgd",
                         .gpt = preset("nano"),
                         .layout = {.mesh = {}, .batch = 16, .micro_batch = 4},
                         .predicted = {}};
      RunLog log(options_, plan, arena_, ctx_);
      for (int64_t step = 0; log.goes_on(step); ++step) {
        const StepRecord record{
            .step = step, .loss = loss, .grad_norm = norm, .lr = 1, .tokens = 1};
        log.begin_step();
        after(step);
        log.end_step(record);
        log.trace(record, 1);
        if (log.eval_due(step)) log.eval(step, 1);
        if (log.save_due(step)) saved_.push_back(step);
      }
      log.finish(val_loss);
    });
  }
  void run(float loss, double norm, double val_loss, const std::function<void(int64_t)>& after) {
    testing::internal::CaptureStderr();
    status_ = status_of(loss, norm, val_loss, after);
    err_ = testing::internal::GetCapturedStderr();
  }
  void run(float loss, double norm, double val_loss) {
    run(loss, norm, val_loss, [](int64_t) {});
  }
  json report() const { return json::parse(read_file(options_.report)); }
  int64_t trace_lines() const {
    const std::string trace = read_file(options_.trace);
    return std::count(trace.begin(), trace.end(), '\n');
  }

  TempDir dir_;
  RunOptions options_;
  Arena arena_;
  Ctx ctx_;
  std::vector<int64_t> saved_;
  int status_ = -1;
  std::string err_;
};

TEST_F(Ending, AllIsDone) {
  run(2, 1, 1.5);
  EXPECT_EQ(status_, 0);
  EXPECT_EQ(err_, "");
  EXPECT_EQ(report()["not_done"], "");
}

// The last update may have thrown the weights out of range, behind a loss and a norm that are fine.
TEST_F(Ending, ARunThatDidNotTrainSaysSo) {
  const auto expect_not_trained = [&](const std::string& why) {
    EXPECT_EQ(status_, 3);
    EXPECT_EQ(err_, "error: the run came to its end, but it did not train: " + why + "\n");
    EXPECT_EQ(report()["not_done"], "it did not train: " + why);
    EXPECT_EQ(trace_lines(), 4);
  };
  run(2, 1, NAN);
  expect_not_trained("its validation loss is NaN or infinite");
  run(NAN, 1, 2);
  expect_not_trained("no step had a finite loss and gradient");
  run(2, std::numeric_limits<double>::infinity(), 2);
  expect_not_trained("no step had a finite loss and gradient");
}

TEST_F(Ending, ACheckpointThatIsNotWrittenIsSaid) {
  options_.save = dir_ / "save";
  run(NAN, 1, 2);
  EXPECT_EQ(status_, 3);
  EXPECT_TRUE(saved_.empty());
  EXPECT_NE(err_.find("warning: step 3: not saved"), std::string::npos) << err_;
  EXPECT_NE(err_.find("--save " + options_.save + " has no checkpoint of step 3: the loss"),
            std::string::npos)
      << err_;
}

TEST_F(Ending, ASignalLetsTheStepEnd) {
  for (const auto& [signal, name] : {std::pair(SIGINT, "SIGINT"), std::pair(SIGTERM, "SIGTERM")}) {
    options_.eval_every = 2;
    options_.save = dir_ / "save";
    saved_.clear();
    run(2, 1, NAN, [&, signal = signal](int64_t step) {
      if (step == 1) std::raise(signal);
    });
    EXPECT_EQ(status_, 128 + signal);
    EXPECT_EQ(err_, fmt::format("interrupted: {} after 2 of 4 steps; the checkpoint is in {}\n",
                                name, options_.save));
    EXPECT_EQ(saved_, (std::vector<int64_t>{1}));
    EXPECT_EQ(trace_lines(), 2);
    EXPECT_EQ(report()["interrupted"], name);
    EXPECT_EQ(report()["steps"], 2);
    EXPECT_TRUE(report()["val_loss"].is_null()) << "left out";
    EXPECT_TRUE(report()["evals"].empty());
  }
}

TEST_F(Ending, ASecondSignalEndsAtOnce) {
  const auto twice = [&](int first, int second) {
    status_of(2, 1, 1, [&](int64_t) {
      std::raise(first);
      std::raise(second);
    });
  };
  EXPECT_EXIT(twice(SIGINT, SIGINT), testing::KilledBySignal(SIGINT), "");
  EXPECT_EXIT(twice(SIGINT, SIGTERM), testing::KilledBySignal(SIGTERM), "");
}

// nohup, and a shell's background jobs.
TEST_F(Ending, ASignalThatIsIgnoredStaysIgnored) {
  const auto before = std::signal(SIGINT, SIG_IGN);
  run(2, 1, 1, [](int64_t) { std::raise(SIGINT); });
  EXPECT_EQ(status_, 0) << err_;
  std::signal(SIGINT, before);
}

// A run is worth more than its trace.
TEST_F(Ending, AFullDiskUnderTheTraceDoesNotEndTheRun) {
  options_.steps = 100;
  options_.save = dir_ / "save";
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {.rlim_cur = 1500, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  testing::internal::CaptureStdout();
  run(2, 1, 1);
  setrlimit(RLIMIT_FSIZE, &before);
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(status_, 3);
  EXPECT_EQ(saved_, (std::vector<int64_t>{99}));
  const std::string reason = "--trace " + options_.trace + ": cannot be written: File too large";
  EXPECT_EQ(err_, "warning: " + reason + "; the run goes on without it\n" +
                      "error: the run came to its end, but " + reason + "\n");
  EXPECT_FALSE(std::filesystem::exists(options_.trace));
  EXPECT_GT(read_file(options_.trace + ".partial").size(), 1000u);
  EXPECT_EQ(report()["steps"], 100);
}

}  // namespace
}  // namespace ladder
