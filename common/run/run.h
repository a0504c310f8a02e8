// Run: the loop over steps, from its first one to the exit status of the program.
#pragma once

#include <memory>

#include "common/run/log.h"
#include "common/run/saver.h"

namespace ladder {

class Comm;
class StopSignals;

/// A chapter makes one after its memory is allocated and before the first step:
///
///   Run run(options, plan, arena, ctx);             // prints the plan, opens all outputs
///   for (; run.goes_on(step); ++step) {
///     run.begin_step();  ...  run.end_step(record);   // the clock runs between the two
///     if (run.tracing()) run.log.trace(record, param_hash(ctx, params, layout));
///     if (run.eval_due(step)) run.log.eval(step, evaluate(...));
///     if (run.save_due(step)) run.saver.save(training_state(...), step + 1);
///   }
///   run.finish(evaluate(...));                       // prints the table, writes the files
class Run {
 public:
  /// @param comm all ranks, each of which has a Run; null: there is only this rank
  /// @throws UserError if an output, or the directory of --save, cannot be written
  Run(const RunOptions& options, RunPlan plan, const Arena& arena, Ctx& ctx, Comm* comm = nullptr);
  ~Run();

  /// Whether the run takes step `step`: there are --steps of them, and no signal has stopped the
  /// run. The first SIGINT or SIGTERM lets a step end. After the last step the trace is complete.
  bool goes_on(int64_t step);
  /// Says within step `step` that it is the last one, before --steps: the data ends.
  void end_after(int64_t step) { options_.steps = step + 1; }
  void begin_step() { log.begin_step(); }
  /// Ranks agree on whether to stop, because a signal may have reached only one of them.
  void end_step(const StepRecord& record);
  /// Whether the run takes no step after this one, whose record end_step() has had.
  bool is_last(int64_t step) const;
  /// Whether there is a trace. The same on all ranks, because a hash may need all of them.
  bool tracing() const { return !options_.trace.empty(); }
  /// Whether a validation is due after step `step`. It is never due after the last step, because
  /// finish() takes that validation loss. A run that a signal stopped has none.
  bool eval_due(int64_t step) const;
  /// Whether to save after it, as Saver::due() says.
  bool save_due(int64_t step) { return saver.due(step, is_last(step)); }
  /// Ends the log. Tells run_main if something that was asked for was not done: finite weights, a
  /// checkpoint, or an output. All ranks call it.
  /// @param val_loss is ignored if a signal has stopped the run
  void finish(double val_loss);

  /// All ranks, in a group that nobody counts; null: this rank is alone.
  Comm* control() const { return control_.get(); }
  /// The largest of what all ranks say here. All of them call it.
  uint8_t most(uint8_t own);
  const RunOptions& options() const { return options_; }

 private:
  void begin(int64_t step);

  RunOptions options_;
  std::unique_ptr<Comm> control_;
  std::unique_ptr<StopSignals> signals_;  ///< from the first step to the last
  bool begun_ = false;

 public:
  Saver saver;  ///< before the log, so that the plan of a run that may not save is not printed
  Log log;
};

}  // namespace ladder
