#include "common/run/run.h"

#include <cstdio>

#include "common/comm/comm.h"
#include "common/run/ending.h"

namespace ladder {

Run::Run(const RunOptions& options, RunPlan plan, const Arena& arena, Ctx& ctx, Comm* comm)
    : options_(options),
      control_(comm && comm->size() > 1 ? comm->split(0, comm->rank()) : nullptr),
      saver(options_, ctx, log, comm ? comm->rank() : 0),
      log{options_, std::move(plan), arena, ctx, comm} {
  if (const std::string changed = saver.changed(); !changed.empty())
    log.note(fmt::format("note: {} was written with {}", options_.load, changed));
}

Run::~Run() = default;

void Run::begin(int64_t step) {
  begun_ = true;
  options_.check_steps_after(step);
  if (!options_.load.empty())
    log.note(step > 0 ? fmt::format("goes on from {}: {} of {} steps are done", options_.load, step,
                                    options_.steps)
                      : "begins with the weights of " + options_.load);
  signals_ = std::make_unique<StopSignals>();
}

bool Run::goes_on(int64_t step) {
  if (!begun_) begin(step);
  if (step < options_.steps && !stopping()) return true;
  // What follows changes nothing that is saved, so a signal ends it at once.
  std::fflush(stdout);
  log.end_trace();
  signals_.reset();
  return false;
}

bool Run::is_last(int64_t step) const { return step + 1 == options_.steps || stopping(); }

void Run::end_step(const StepRecord& record) {
  log.end_step(record);
  if (const int signal = most(static_cast<uint8_t>(stop_signal()))) stop(signal);
}

bool Run::eval_due(int64_t step) const {
  return options_.eval_every > 0 && (step + 1) % options_.eval_every == 0 && !is_last(step);
}

uint8_t Run::most(uint8_t own) {
  // A byte, because no planted fault is meant for bytes (faulty_comm.h).
  if (control_) control_->all_reduce({.ptr = &own, .dtype = Dtype::U8, .shape = {1}}, Combine::Max);
  return own;
}

// All ranks end in the same way, although perhaps only one knows that an output was lost.
void Run::finish(double val_loss) {
  log.finish(val_loss);
  const std::string reasons = log.reasons();
  const int own = stopping() ? 128 + stopped_by() : reasons.empty() ? 0 : kNotDone;
  const uint8_t status = most(static_cast<uint8_t>(own));
  if (status == 0) return;
  std::string line = "error: the run came to its end, but " + reasons;
  if (stopping())
    line = fmt::format("interrupted: {} after {} of {} steps; {}", signal_name(stopped_by()),
                       log.last_step() + 1, options_.steps,
                       !reasons.empty()        ? reasons
                       : options_.save.empty() ? "nothing is saved without --save"
                                               : "the checkpoint is in " + options_.save);
  end_with({log.speaks() ? line : "", status});
}

}  // namespace ladder
