#include "common/run/log.h"

#include <array>

#include "common/run/checkpoint.h"
#include "common/run/timeline.h"

namespace ladder {
namespace {

// Control characters of a barely trained model would upset a terminal.
std::string printable(std::string_view text) {
  std::string shown(text);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < ' ' && c != '\n') c = '?';
  return shown;
}

}  // namespace

RunLog::RunLog(const RunOptions& options, RunPlan plan, const Arena& arena, Ctx& ctx)
    : options_(options),
      plan_(std::move(plan)),
      arena_(arena),
      ctx_(ctx),
      progress_(stdout, Progress::style_for(stdout, options.quiet), options.steps) {
  if (!options_.trace.empty()) trace_.emplace(options_.trace, "--trace");
  if (!options_.report.empty()) report_.emplace(options_.report, "--report");
  if (!options_.timeline.empty()) timeline_.emplace(options_.timeline, "--timeline");
  if (!options_.save.empty()) check_save_dir(options_.save);
  progress_.line(plan_text(plan_));
}

RunLog::~RunLog() {
  progress_.end();
  ctx_.events = nullptr;
}

void RunLog::begin_step() {
  const bool full = events_.size() >= kMaxEvents;
  if (timeline_ && !full) ctx_.events = &events_;
  ctx_.synchronize();  // what a validation has queued is not of this step
  begin_ns_ = now_ns();
}

void RunLog::end_step(const StepRecord& record) {
  ctx_.synchronize();
  const int64_t end_ns = now_ns();
  const double seconds = static_cast<double>(end_ns - begin_ns_) * 1e-9;
  step_ms_.push_back(seconds * 1e3);
  seconds_ += seconds;
  tokens_ += record.tokens;
  last_ = record;
  end_events(record.step, end_ns);

  const int64_t done = record.step + 1;
  const auto steps_here = static_cast<double>(step_ms_.size());
  progress_.show(
      {.done = done,
       .loss = record.loss,
       .tokens_per_second = static_cast<double>(tokens_) / seconds_,
       .seconds_left = seconds_ / steps_here * static_cast<double>(options_.steps - done)});
}

// What runs between steps, a validation say, is not recorded.
void RunLog::end_events(int64_t step, int64_t end_ns) {
  if (!ctx_.events) return;
  ctx_.events = nullptr;
  events_.push_back({"step", begin_ns_, end_ns});
  if (events_.size() >= kMaxEvents)
    note(fmt::format("step {}: --timeline holds {} events and ends here", step, events_.size()));
}

void RunLog::trace(const StepRecord& record, uint64_t param_hash) {
  if (trace_) trace_->write(trace_line(record, param_hash));
}

bool RunLog::eval_due(int64_t step) const {
  const int64_t done = step + 1;
  return options_.eval_every > 0 && done % options_.eval_every == 0 && done < options_.steps;
}

void RunLog::eval(int64_t step, double val_loss) {
  evals_.push_back({{"step", step}, {"val_loss", val_loss}});
  note(fmt::format("step {}: validation loss {:.4f}", step, val_loss));
}

bool RunLog::save_due(int64_t step) const {
  if (options_.save.empty()) return false;
  const int64_t done = step + 1;
  return done == options_.steps || (options_.save_every > 0 && done % options_.save_every == 0);
}

void RunLog::sample(std::string_view text) {
  progress_.end();
  progress_.line(fmt::format("---- sample\n{}\n----", printable(text)));
}

void RunLog::finish(double val_loss) {
  progress_.end();
  const RunResult r = result(val_loss);
  progress_.line(result_text(plan_, r));
  if (trace_) trace_->commit();
  if (report_) write_report(*report_, r);
  if (timeline_) write_timeline(*timeline_);
}

RunResult RunLog::result(double val_loss) const {
  return {.steps = last_ ? last_->step + 1 : 0,
          .final_loss = last_ ? std::optional<double>(last_->loss) : std::nullopt,
          .val_loss = val_loss,
          .tokens_per_second = seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0,
          .step_ms_median = median(step_ms_),
          .measured = arena_.peak()};
}

void RunLog::write_report(OutputFile& out, const RunResult& result) const {
  nlohmann::json report = report_json(plan_, result);
  report["evals"] = evals_;
  report["extra"] = extra_;
  out.write(report.dump(2) + "\n");
  out.commit();
}

void RunLog::write_timeline(OutputFile& out) const {
  const std::array ranks = {events_};
  out.write(timeline_json(ranks));
  out.commit();
}

}  // namespace ladder
