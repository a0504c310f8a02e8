// RunLog: everything that a run tells, on the screen and in --trace, --report and --timeline.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/comm/comm.h"
#include "common/output_file.h"
#include "common/run/ending.h"
#include "common/run/options.h"
#include "common/run/progress.h"
#include "common/run/report.h"
#include "common/run/timeline.h"
#include "common/run/tokenizer.h"
#include "common/save/directory.h"
#include "common/save/training_state.h"
#include "kernels/context.h"

namespace ladder {

/// --plan-only: prints the plan, and writes --report as far as a plan knows it. All ranks call it.
/// @param comm of all ranks; null: this rank is alone
void show_plan(const RunOptions& options, const RunPlan& plan, Comm* comm = nullptr);
/// The latter, on rank 0. @param memory memory_json() of some ranks
void write_plan(const RunOptions& options, const RunPlan& plan,
                const std::vector<nlohmann::json>& memory, const nlohmann::json& extra = {});

/// A chapter makes one after its memory is allocated and before the first step:
///
///   RunLog log(options, plan, arena, ctx);          // prints the plan, opens all outputs
///   for (; log.goes_on(step); ++step) {
///     log.begin_step();  ...  log.end_step(record);   // the clock runs between the two
///     if (log.tracing()) log.trace(record, param_hash(ctx, params, layout));
///     if (log.eval_due(step)) log.eval(step, evaluate(...));
///     if (log.save_due(step)) log.save(training_state(...), step + 1);
///   }
///   log.finish(evaluate(...));                       // prints the table, writes the files
class RunLog {
 public:
  /// With --timeline, ctx.events points into this object during each step.
  /// @param comm all ranks. Each has a RunLog, and that of rank 0 speaks for all; null: there is
  /// only this rank
  /// @throws UserError if an output, or the directory of --save, cannot be written
  RunLog(const RunOptions& options, RunPlan plan, const Arena& arena, Ctx& ctx,
         Comm* comm = nullptr);
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;
  /// If an exception ends the run after a step, the trace so far stays in FILE.partial.
  ~RunLog();

  /// Records a thread that works for this rank while the rank computes. It has a row in the
  /// timeline: "rank 0, beside". ctx.events points to `events` during each step. Both must outlive
  /// the thread, which may still record when a rank fails and this object ends.
  void record_beside(Ctx& ctx, std::vector<Event>& events);
  /// Counts the messages of a further group, beside the group of all ranks.
  void count(const Comm& comm) { groups_.push_back({&comm}); }
  /// What counts the targets of losses, for bits per byte, in a chapter whose sequences are not
  /// those of Text. An empty one leaves it at those of Text.
  void count_targets_with(LossTargets targets) { targets_ = std::move(targets); }
  /// Bytes that this rank sent in that group in the last step; 0 if there was none.
  int64_t sent_in_step(const Comm& comm) const;

  /// Whether the run takes step `step`: there are --steps of them, and no signal has stopped the
  /// run. The first SIGINT or SIGTERM lets a step end. After the last step the trace is complete.
  bool goes_on(int64_t step);
  /// Says within step `step` that it is the last one, before --steps: the data ends.
  void end_after(int64_t step) { options_.steps = step + 1; }
  void begin_step();
  /// Ranks agree on whether to stop, because a signal may have reached only one of them.
  void end_step(const StepRecord& record);

  /// The largest of what all ranks say here. All of them call it; it counts as nobody's traffic.
  uint8_t most(uint8_t own);

  /// The same on all ranks, because a hash may need all of them.
  bool tracing() const { return !options_.trace.empty(); }
  void trace(const StepRecord& record, uint64_t param_hash);

  /// Whether a validation is due after step `step`. It is never due after the last step, because
  /// finish() takes that validation loss. A run that a signal stopped has none.
  bool eval_due(int64_t step) const;
  void eval(int64_t step, double val_loss);

  /// Whether to save after step `step`, whose record end_step() has had: every --save-every steps,
  /// after the last, and where a signal stops the run. A checkpoint whose loss is NaN or infinite
  /// is not written; stderr says so, --quiet or not. The same on all ranks.
  bool save_due(int64_t step);
  /// Whether the run takes no step after this one, whose record end_step() has had.
  bool is_last(int64_t step) const { return step + 1 == options_.steps || stopped_by_ != 0; }
  /// Saves in the directory of --save. A state with a NaN or an infinity is not committed; stderr
  /// says so, --quiet or not. All ranks call it.
  /// @throws NotWritten on rank 0 if the disk refuses
  void save(const TrainingState& state, int64_t steps);
  /// For a chapter that writes checkpoints itself: the state with what every run adds to it.
  TrainingState all_of(const TrainingState& state) const;
  /// The same: the directory on rank 0; null on others.
  SaveDirectory* save_directory() const { return save_.get(); }
  /// The same: what became of the save, once it is done.
  /// @param why_not on rank 0, why nothing is saved
  /// @param told for --report
  void saved(int64_t steps, const std::string& why_not, nlohmann::json told);
  /// All ranks, in a group that nobody counts; null: this rank is alone.
  Comm* control() const { return control_.get(); }
  const RunOptions& options() const { return options_; }

  /// Prints one line without breaking the bar.
  void note(std::string_view line) { progress_.line(line); }
  /// Step `step` does not update the weights. Prints why. --report lists all such steps.
  void skipped(int64_t step, std::string_view why);
  /// Whether the last step was one of them: nothing is predicted of what follows its update.
  bool last_step_skipped() const {
    return last_ && !skipped_.empty() && skipped_.back()["step"] == last_->step;
  }
  /// Prints generated text, made safe by printable(): a barely trained model writes any bytes.
  void sample(std::string_view text);
  /// A chapter's own entries in --report, under "extra".
  nlohmann::json& extra() { return extra_; }
  /// Sets the entry "traffic": bytes that this rank sent in the last step, 0 if there was none.
  /// @param predicted none if there is no formula
  void traffic(std::optional<int64_t> predicted, int64_t measured);

  /// The run ends without having done what `what` asked for; its last line says why, and its status
  /// is 3. All ranks call it.
  void not_done(const std::string& what, const std::string& why) { not_done_.emplace(what, why); }
  /// The output of `flag` can no longer be written. The run goes on, but does not end well.
  void give_up(const char* flag, const UserError& e);

  /// How many steps this run has done.
  int64_t steps() const { return std::ssize(step_ms_); }
  /// What the last of them took. Not before a step.
  double last_ms() const { return step_ms_.back(); }
  /// The last of these steps. If there is none: the last of --steps.
  int64_t last_step() const { return last_ ? last_->step : options_.steps - 1; }

  /// Prints the table and writes the files. Tells run_main if something that was asked for was not
  /// done: finite weights, a checkpoint, or an output. All ranks call it.
  /// @param val_loss is ignored if a signal has stopped the run
  void finish(double val_loss);

 private:
  /// A group whose messages count, and the bytes that this rank sent in it.
  struct Group {
    const Comm* comm;
    int64_t before = 0;   ///< before the last step
    int64_t in_step = 0;  ///< in the last step
  };
  /// A row of the timeline, and what it belongs to.
  struct Row {
    std::string name;
    Ctx* ctx;
    std::vector<Event>* events;
  };
  int rank() const { return comm_ ? comm_->rank() : 0; }
  bool speaks() const { return rank() == 0; }
  const LossTargets& targets();
  TargetCount val_targets();
  void end_events(int64_t step, int64_t end_ns);
  void tell_not_saved(int64_t step, std::string_view why);
  void agree_to_stop();
  void end_trace();
  RunResult result(double val_loss);
  std::vector<nlohmann::json> gather(const RunResult& result) const;
  std::string report_text(const RunResult& result, std::span<const nlohmann::json> ranks) const;
  void write_file(const std::string& path, const char* flag, const std::string& text);
  void judge(const RunResult& result);
  std::string reasons() const;
  void end_run(const RunResult& result);

  RunOptions options_;
  RunPlan plan_;
  const Arena& arena_;
  Ctx& ctx_;
  Comm* comm_;
  std::unique_ptr<Comm> control_;  ///< all ranks, not counted; null: only this rank
  std::vector<Group> groups_;
  Progress progress_;
  std::optional<OutputFile> trace_;
  std::unique_ptr<SaveDirectory> save_;          ///< on rank 0
  std::optional<StopSignals> signals_;           ///< from the first step on
  int stopped_by_ = 0;                           ///< the signal; 0 if none
  std::map<std::string, std::string> not_done_;  ///< why, by what was asked for

  std::vector<Event> events_;      ///< of this rank's own thread
  std::vector<Row> rows_;          ///< its own row comes first
  std::vector<StepStart> starts_;  ///< of the steps on the timeline
  std::vector<double> step_ms_;
  std::optional<StepRecord> last_;
  LossTargets targets_;                  ///< on the rank that speaks
  TargetCount last_over_;                ///< of the last step
  TargetCount read_;                     ///< of all steps of this run
  std::optional<TargetCount> val_over_;  ///< the same in each validation
  int64_t finite_steps_ = 0;             ///< steps with finite loss and norm
  int64_t begin_ns_ = 0;
  int64_t tokens_ = 0;  ///< of all steps of this run
  double seconds_ = 0;  ///< of all steps of this run

  nlohmann::json saves_ = nlohmann::json::array();  ///< of this rank
  nlohmann::json origin_;                           ///< rank 0's, if the run loads or saves
  nlohmann::json evals_ = nlohmann::json::array();
  nlohmann::json skipped_ = nlohmann::json::array();
  nlohmann::json extra_ = nlohmann::json::object();
};

}  // namespace ladder
