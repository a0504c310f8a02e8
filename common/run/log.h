// Log: everything that a run tells, on the screen and in --trace, --report and --timeline.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/run/options.h"
#include "common/run/report.h"
#include "kernels/context.h"

namespace ladder {

class Comm;
class OutputFile;
struct StepStart;

/// --plan-only: prints the plan, and writes --report as far as a plan knows it. All ranks call it.
/// @param comm of all ranks; null: this rank is alone
void show_plan(const RunOptions& options, const RunPlan& plan, Comm* comm = nullptr);
/// Writes --report as far as a plan knows it. On rank 0. @param memory memory_json() of some ranks
void write_plan(const RunOptions& options, const RunPlan& plan,
                const std::vector<nlohmann::json>& memory, const nlohmann::json& extra = {});

/// Each rank of a Run has one, and that of rank 0 speaks for all.
class Log {
 public:
  /// Prints the plan, and opens all outputs. With --timeline, ctx.events points into this object
  /// during each step. @param options outlive it
  /// @throws UserError if an output cannot be written
  Log(const RunOptions& options, RunPlan plan, const Arena& arena, Ctx& ctx, Comm* comm);
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  /// If an exception ends the run after a step, the trace so far stays in FILE.partial.
  ~Log();

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

  /// The clock of a step, its messages and its events.
  void begin_step();
  void end_step(const StepRecord& record);
  void trace(const StepRecord& record, uint64_t param_hash);
  void end_trace();
  void eval(int64_t step, double val_loss);
  /// Prints one line, unless --quiet.
  void note(std::string_view line) const;
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
  /// An entry of "saves".
  void saved(nlohmann::json told) { saves_.push_back(std::move(told)); }

  /// The run ends without having done what `what` asked for; its last line says why, and its status
  /// is 3. All ranks call it.
  void not_done(const std::string& what, const std::string& why) { not_done_.emplace(what, why); }
  /// The output of `flag` can no longer be written. The run goes on, but does not end well.
  void give_up(const char* flag, const UserError& e);
  /// Why the run does not end well; empty: it does.
  std::string reasons() const;

  int rank() const;
  bool speaks() const { return rank() == 0; }
  /// How many steps this run has done, and the last of them.
  int64_t steps() const { return std::ssize(step_ms_); }
  const std::optional<StepRecord>& last() const { return last_; }
  /// Its number. If there is none: the last of --steps.
  int64_t last_step() const { return last_ ? last_->step : options_.steps - 1; }

  /// Prints the table and writes the files. All ranks call it.
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
  const LossTargets& targets();
  TargetCount val_targets();
  void end_events(int64_t step, int64_t end_ns);
  RunResult result(double val_loss);
  std::vector<nlohmann::json> gather(const RunResult& result) const;
  std::string report_text(const RunResult& result, std::span<const nlohmann::json> ranks) const;
  void write_file(const std::string& path, const char* flag, const std::string& text);
  void judge(const RunResult& result);

  const RunOptions& options_;
  RunPlan plan_;
  const Arena& arena_;
  Ctx& ctx_;
  Comm* comm_;  ///< of all ranks; null: only this one
  std::vector<Group> groups_;
  std::unique_ptr<OutputFile> trace_;
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
  nlohmann::json evals_ = nlohmann::json::array();
  nlohmann::json skipped_ = nlohmann::json::array();
  nlohmann::json extra_ = nlohmann::json::object();
};

}  // namespace ladder
