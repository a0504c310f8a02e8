#include "common/run/log.h"

#include <cmath>
#include <exception>

#include "common/comm/failure.h"
#include "common/comm/gather_text.h"
#include "common/printable.h"
#include "common/run/checkpoint.h"

namespace ladder {

RunLog::RunLog(const RunOptions& options, RunPlan plan, const Arena& arena, Ctx& ctx, Comm* comm)
    : options_(options),
      plan_(std::move(plan)),
      arena_(arena),
      ctx_(ctx),
      comm_(comm),
      progress_(stdout, Progress::style_for(stdout, options.quiet || !speaks()), options.steps) {
  rows_.push_back({fmt::format("rank {}", rank()), &ctx, &events_});
  if (comm) count(*comm);
  if (!speaks()) return;
  if (!options_.trace.empty()) trace_.emplace(options_.trace, "--trace");
  if (!options_.report.empty()) report_.emplace(options_.report, "--report");
  if (!options_.timeline.empty()) timeline_.emplace(options_.timeline, "--timeline");
  if (!options_.save.empty()) save_.emplace(options_.save);
  progress_.line(plan_text(plan_));
}

RunLog::~RunLog() {
  progress_.end();
  ctx_.events = nullptr;
  // What a run has done before it failed may tell why.
  const bool failed = std::uncaught_exceptions() > 0;
  if (failed && trace_ && !step_ms_.empty()) trace_->keep_partial();
}

void RunLog::record_beside(Ctx& ctx, std::vector<Event>& events) {
  rows_.push_back({fmt::format("rank {}, beside", rank()), &ctx, &events});
}

void RunLog::begin_step() {
  if (!options_.timeline.empty() && events_.size() < kMaxEvents)
    for (Row& row : rows_) row.ctx->events = row.events;
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
  for (Row& row : rows_) row.ctx->events = nullptr;
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
  note(fmt::format("step {}: validation loss {}", step, loss_text(val_loss)));
}

bool RunLog::save_due(int64_t step) {
  if (options_.save.empty()) return false;
  const int64_t done = step + 1;
  if (done != options_.steps && (options_.save_every == 0 || done % options_.save_every != 0))
    return false;
  // Weights that have come to this are worth less than what the directory holds. A norm that is not
  // finite says less: a step that is skipped for it leaves good weights.
  if (!last_ || std::isfinite(last_->loss)) return true;
  if (speaks()) tell_not_saved(step, "the loss is NaN or infinite");
  return false;
}

void RunLog::save(const TrainingState& state, int64_t steps) {
  const std::string why = save_checkpoint(ctx_, save_ ? &*save_ : nullptr, state, steps);
  if (!why.empty()) tell_not_saved(steps - 1, why);
}

void RunLog::tell_not_saved(int64_t step, std::string_view why) {
  progress_.end();
  tell(fmt::format("warning: step {}: not saved, {}; {} keeps what it holds", step, why,
                   options_.save));
}

void RunLog::sample(std::string_view text) {
  progress_.end();
  progress_.line(fmt::format("---- sample\n{}\n----", printable(text, "\n\t")));
}

void RunLog::finish(double val_loss) {
  progress_.end();
  const RunResult r = result(val_loss);
  const std::vector<nlohmann::json> ranks = gather(r);
  if (!speaks()) return;
  progress_.line(result_text(plan_, r));
  if (trace_) trace_->commit();
  if (report_) write_report(r, ranks);
  if (timeline_) write_timeline(ranks);
}

RunResult RunLog::result(double val_loss) const {
  RunResult result{.steps = options_.steps,  // a run that is over has done them all
                   .final_loss = last_ ? std::optional<double>(last_->loss) : std::nullopt,
                   .val_loss = val_loss,
                   .tokens_per_second = seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0,
                   .step_ms_median = median(step_ms_),
                   .measured = arena_.peak()};
  for (const Comm* group : groups_) result.sent += group->statistics();
  return result;
}

/// What all ranks say of themselves, on rank 0.
std::vector<nlohmann::json> RunLog::gather(const RunResult& result) const {
  std::vector<TimelineRow> rows;
  for (const Row& row : rows_) rows.push_back({row.name, *row.events});
  nlohmann::json own = {{"memory", memory_json(rank(), plan_.predicted, result.measured)},
                        {"comm", comm_json(rank(), result.sent)},
                        {"rows", rows_json(rows)}};
  if (!comm_) return {std::move(own)};
  std::vector<nlohmann::json> all;
  for (const std::string& text : gather_text(*comm_, own.dump()))
    all.push_back(nlohmann::json::parse(text));
  return all;
}

void RunLog::write_report(const RunResult& result, std::span<const nlohmann::json> ranks) {
  nlohmann::json report = report_json(plan_, result);
  for (const nlohmann::json& rank : ranks)
    for (const char* part : {"memory", "comm"}) report[part].push_back(rank.at(part));
  report["evals"] = evals_;
  report["extra"] = extra_;
  report_->write(report.dump(2) + "\n");
  report_->commit();
}

void RunLog::write_timeline(std::span<const nlohmann::json> ranks) {
  std::vector<nlohmann::json> rows;
  for (const nlohmann::json& rank : ranks) rows.push_back(rank.at("rows"));
  timeline_->write(timeline_json(rows));
  timeline_->commit();
}

}  // namespace ladder
