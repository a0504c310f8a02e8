// The bubble of a run: how long stages wait for one another.
//
// Each action is timed by the CPU clock of its rank's thread. That clock stands still while the
// thread waits for a message or for a core. These times advance the clock of the stage; a receive
// also advances it to the time when its message was sent (pipeline_clock.h). So stages that take
// turns on a few cores show the bubble that they would have with a core each. If there are enough
// cores, it is what a wall clock shows.
//
// With several --threads only the rank's own thread is timed: its share of each operation, and its
// waiting for the others while it watches (kernels/cpu/team.h). Kernels of a device run beside the
// thread, so nothing is timed there and no bubble is reported. The times of one step are one
// sample. For each action, the shortest time over the steps of a run counts, because the others
// were disturbed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/12_pipeline_parallel/proof/pipeline_check.h"
#include "chapters/12_pipeline_parallel/proof/pipeline_clock.h"
#include "common/comm/comm.h"
#include "common/run/log.h"

namespace ladder {

/// How many milliseconds each action of one stage took.
class ActionTimes {
 public:
  /// @param actions how many actions a step has
  /// @param on      whether the thread itself does the work; if not, best() stays empty
  ActionTimes(size_t actions, bool on) : on_(on), best_(on ? actions : 0) {}

  /// Called before the first action of a step.
  void begin_step() { next_ = 0; }

  /// Times the next action, until the end of a scope.
  class Scope {
   public:
    explicit Scope(ActionTimes& times) : times_(times), begin_(cpu_ms()) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { times_.add(cpu_ms() - begin_); }

   private:
    ActionTimes& times_;
    double begin_;
  };

  /// The shortest times, in the order of the list.
  const std::vector<double>& best() const { return best_; }

 private:
  static double cpu_ms() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
  }
  void add(double ms) {
    if (!on_) return;
    double& best = best_.at(next_++);
    best = best == 0 ? ms : std::min(best, ms);
  }

  bool on_;
  std::vector<double> best_;
  size_t next_ = 0;
};

/// The mean times T_F, T_I and T_W of a whole micro-batch on one stage, over all stages.
inline std::array<double, 3> mean_times(const Pipeline& pipeline, const Durations& durations) {
  std::array<double, 3> sum{};
  for (size_t s = 0; s < durations.size(); ++s)
    for (size_t i = 0; i < durations[s].size(); ++i) {
      const Do what = pipeline.lists[s][i].what;
      // A whole Backward counts as T_I, with T_W = 0. Schedules with it need only the sum of both.
      const size_t which = what == Do::Forward ? 0 : what == Do::BackwardWeight ? 2 : 1;
      if (what <= Do::BackwardWeight) sum[which] += durations[s][i];
    }
  for (double& x : sum) x /= static_cast<double>(pipeline.stages * pipeline.micros);
  return sum;
}

/// Reports on rank 0: the schedule, the most micro-batches in flight, and bubble and timeline with
/// the shortest time of each action over all steps. Nothing if there was no step. All stages call
/// it.
/// @param most micro-batches that were in flight here
inline void report_pipeline(Log& log, Comm& stages, const Pipeline& pipeline,
                            const ActionTimes& times, int64_t most) {
  if (log.steps() == 0) return;
  const nlohmann::json own = {{"most", most}, {"times", times.best()}};
  // A group of its own, so that these texts do not count as traffic of the run.
  const std::unique_ptr<Comm> group = stages.split(0, stages.rank());
  const std::vector<std::string> texts = gather_text(*group, own.dump());
  nlohmann::json& report = log.extra()["pipeline"];
  report = {{"name", to_string(pipeline.kind)}, {"micro_batches", pipeline.micros}};
  Durations durations;
  for (const std::string& text : texts) {
    const auto stage = nlohmann::json::parse(text);
    const int64_t s = std::ssize(durations);
    report["in_flight"].push_back(
        {{"predicted",
          promised_in_flight(pipeline.kind, pipeline.stages, pipeline.chunks, pipeline.micros, s)},
         {"measured", stage["most"]}});
    durations.push_back(stage["times"].get<std::vector<double>>());
  }
  if (durations.empty() || durations[0].size() != pipeline.lists[0].size()) return;
  const PipelineClock clock = simulate(pipeline, durations);
  const auto [F, B, W] = mean_times(pipeline, durations);
  report["bubble"] = {{"theory", theory_idle_share(pipeline.kind, pipeline.stages, pipeline.chunks,
                                                   pipeline.micros, F, B, W)},
                      {"measured", clock.idle_share()}};
  report["ms"] = {{"forward", F}, {"backward_input", B}, {"backward_weight", W}};
  report["timeline"] = to_json(clock);
}

}  // namespace ladder
