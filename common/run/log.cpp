#include "common/run/log.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <ranges>

#include "common/comm/comm.h"
#include "common/error.h"
#include "common/json.h"
#include "common/output_file.h"
#include "common/printable.h"
#include "common/run/ending.h"
#include "common/run/timeline.h"
#include "common/run/tokenizer.h"

namespace ladder {
namespace {

/// What each rank gives, by rank, on rank 0. @param comm null: this rank is alone
std::vector<nlohmann::json> gather_json(Comm* comm, const nlohmann::json& own) {
  if (!comm) return {own};
  std::vector<nlohmann::json> all;
  for (const std::string& text : gather_text(*comm, json_text(own)))
    all.push_back(nlohmann::json::parse(text));
  return all;
}

std::string timeline_text(std::span<const nlohmann::json> ranks) {
  std::vector<nlohmann::json> rows;
  for (const nlohmann::json& rank : ranks) rows.push_back(rank.at("rows"));
  return timeline_json(rows);
}

/// Whether a line tells of this step: about 20 of a run do.
bool line_due(int64_t done, int64_t steps) {
  return done == 1 || done == steps || done % std::max<int64_t>(1, steps / 20) == 0;
}

std::string minutes(double seconds) {
  const auto s = std::isfinite(seconds) ? static_cast<int64_t>(std::lround(seconds)) : 0;
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace

Log::Log(const RunOptions& options, RunPlan plan, const Arena& arena, Ctx& ctx, Comm* comm)
    : options_(options), plan_(std::move(plan)), arena_(arena), ctx_(ctx), comm_(comm) {
  plan_.layout.comm = comm ? comm->kind() : "self";
  rows_.push_back({fmt::format("rank {}", rank()), &ctx, &events_});
  if (comm) count(*comm);
  if (!speaks()) return;
  // Files that are written at the end are also opened now, to see whether that is possible.
  if (!options_.report.empty()) OutputFile(options_.report, "--report");
  if (!options_.timeline.empty()) OutputFile(options_.timeline, "--timeline");
  if (!options_.trace.empty()) trace_ = std::make_unique<OutputFile>(options_.trace, "--trace");
  note(plan_text(plan_));
  if (options_.text_tokenizer) note(tokens_text(options_));
}

Log::~Log() {
  ctx_.events = nullptr;
  // What a run did before it failed may show why it failed.
  const bool failed = std::uncaught_exceptions() > 0;
  if (failed && trace_ && !step_ms_.empty()) trace_->keep_partial();
}

int Log::rank() const { return comm_ ? comm_->rank() : 0; }

int64_t Log::sent_in_step(const Comm& comm) const {
  for (const Group& group : groups_)
    if (group.comm == &comm) return group.in_step;
  throw CheckError("a group that nobody counts");
}

void Log::record_beside(Ctx& ctx, std::vector<Event>& events) {
  rows_.push_back({fmt::format("rank {}, beside", rank()), &ctx, &events});
}

void Log::begin_step() {
  if (!options_.timeline.empty() && events_.size() < kMaxEvents)
    for (Row& row : rows_) row.ctx->events = row.events;
  ctx_.synchronize();  // work queued by a validation is not part of this step
  for (Group& group : groups_) group.before = group.comm->statistics().wire_bytes();
  begin_ns_ = now_ns();
}

void Log::end_step(const StepRecord& record) {
  ctx_.synchronize();
  const int64_t end_ns = now_ns();
  for (Group& group : groups_) group.in_step = group.comm->statistics().wire_bytes() - group.before;
  const double seconds = static_cast<double>(end_ns - begin_ns_) * 1e-9;
  step_ms_.push_back(seconds * 1e3);
  seconds_ += seconds;
  tokens_ += record.tokens;
  last_ = record;
  if (speaks()) last_over_ = targets().of_step(record.step, record.tokens);
  read_ += last_over_;
  finite_steps_ += std::isfinite(record.loss) && std::isfinite(record.grad_norm);
  end_events(record.step, end_ns);

  const int64_t done = record.step + 1, all = options_.steps;
  if (!line_due(done, all)) return;
  const double bits = bits_per_byte(record.loss, last_over_);  // 0: not known
  const double a_step = seconds_ / static_cast<double>(step_ms_.size());
  note(fmt::format(
      "step {:>{}}/{}  loss {}{}  {:.0f} tokens/s  {} left", done, fmt::formatted_size("{}", all),
      all, loss_text(record.loss), bits > 0 ? fmt::format(", {:.3f} bits/byte", bits) : "",
      static_cast<double>(tokens_) / seconds_, minutes(a_step * static_cast<double>(all - done))));
}

void Log::note(std::string_view line) const {
  if (options_.quiet || !speaks()) return;
  std::fputs(fmt::format("{}\n", line).c_str(), stdout);
  std::fflush(stdout);
}

// What runs between steps, such as a validation, is not recorded.
void Log::end_events(int64_t step, int64_t end_ns) {
  if (!ctx_.events) return;
  for (Row& row : rows_) row.ctx->events = nullptr;
  events_.push_back({"step", begin_ns_, end_ns});
  starts_.push_back({step, begin_ns_});
  if (events_.size() >= kMaxEvents)
    note(fmt::format("step {}: --timeline holds {} events and ends here", step, events_.size()));
}

void Log::give_up(const char* flag, const UserError& e) {
  tell(fmt::format("warning: {}; the run goes on without it", e.what()));
  not_done_.emplace(flag, e.what());
}

// Writes a line at a time, for programs that follow the file. If it fails, the run need not be
// lost.
void Log::trace(const StepRecord& record, uint64_t param_hash) {
  if (!trace_) return;
  try {
    trace_->write(trace_line(record, param_hash));
    trace_->flush();
  } catch (const UserError& e) {
    give_up("--trace", e);
    trace_->keep_partial();
    trace_.reset();
  }
}

void Log::end_trace() {
  if (!trace_) return;
  try {
    trace_->commit();
  } catch (const UserError& e) {
    give_up("--trace", e);
    trace_->keep_partial();
  }
  trace_.reset();
}

void Log::eval(int64_t step, double val_loss) {
  if (!speaks()) return;
  const double bits = bits_per_byte(val_loss, val_targets());
  evals_.push_back({{"step", step},
                    {"bytes_read", read_.bytes},
                    {"val_loss", val_loss},
                    {"perplexity", perplexity(val_loss)},
                    {"bits_per_byte", bits > 0 ? nlohmann::json(bits) : nlohmann::json()}});
  note(fmt::format("step {}: validation loss {}, perplexity {:.4g}{}", step, loss_text(val_loss),
                   perplexity(val_loss), bits > 0 ? fmt::format(", {:.4f} bits/byte", bits) : ""));
}

// Not before the first step: until then a chapter may say what counts.
const LossTargets& Log::targets() {
  if (!targets_.of_step) targets_ = targets_of(options_, plan_.gpt);
  return targets_;
}

TargetCount Log::val_targets() {
  if (!val_over_) val_over_ = targets().of_validation();
  return *val_over_;
}

void Log::skipped(int64_t step, std::string_view why) {
  skipped_.push_back({{"step", step}, {"why", why}});
  note(fmt::format("step {}: skipped, {}", step, why));
}

void Log::traffic(std::optional<int64_t> predicted, int64_t measured) {
  if (steps() == 0) predicted = 0;
  extra_["traffic"] = {{"predicted", predicted ? nlohmann::json(*predicted) : nlohmann::json()},
                       {"measured", measured}};
}

void Log::sample(std::string_view text) {
  if (!stopping()) note(fmt::format("---- sample\n{}\n----", printable(text, "\n\t")));
}

void Log::finish(double val_loss) {
  const RunResult r = result(val_loss);
  const std::vector<nlohmann::json> ranks = gather(r);
  judge(r);
  if (speaks()) {
    note(result_text(plan_, r));
    end_trace();
    write_file(options_.report, "--report", report_text(r, ranks));
    write_file(options_.timeline, "--timeline", timeline_text(ranks));
  }
}

RunResult Log::result(double val_loss) {
  RunResult result{.steps = last_step() + 1,
                   .final_loss = last_ ? std::optional<double>(last_->loss) : std::nullopt,
                   .val_loss = !stopping() ? std::optional(val_loss) : std::nullopt,
                   .final_over = last_over_,
                   .val_over = speaks() && !stopping() ? val_targets() : TargetCount{},
                   .read = read_,
                   .tokens_per_second = seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0,
                   .step_ms_median = median(step_ms_),
                   .measured = arena_.peak()};
  for (const Group& group : groups_) result.sent += group.comm->statistics();
  if (ctx_.device) {
    result.device = ctx_.device->name();
    result.clock_mhz = ctx_.device->facts().clock_mhz;
  }
  return result;
}

/// The reports of all ranks, on rank 0.
std::vector<nlohmann::json> Log::gather(const RunResult& result) const {
  std::vector<TimelineRow> rows;
  for (const Row& row : rows_) rows.push_back({row.name, *row.events});
  return gather_json(comm_, {{"memory", memory_json(rank(), plan_.predicted, result.measured)},
                             {"comm", comm_json(rank(), result.sent)},
                             {"saves", saves_},
                             {"rows", rows_json(rows, starts_)}});
}

std::string Log::report_text(const RunResult& result, std::span<const nlohmann::json> ranks) const {
  nlohmann::json report = report_json(plan_, result);
  report["run"] = run_json(options_);
  report["interrupted"] = stopping() ? nlohmann::json(signal_name(stopped_by())) : nlohmann::json();
  report["not_done"] = reasons();
  for (const nlohmann::json& rank : ranks)
    for (const char* part : {"memory", "comm", "saves"}) report[part].push_back(rank.at(part));
  report["evals"] = evals_;
  report["skipped"] = skipped_;
  report["extra"] = extra_;
  return json_text(report, 2) + "\n";
}

void Log::write_file(const std::string& path, const char* flag, const std::string& text) {
  if (path.empty()) return;
  try {
    ladder::write_file(path, flag, text);
  } catch (const UserError& e) {
    give_up(flag, e);
  }
}

// The validation loss belongs to the weights after the last update.
void Log::judge(const RunResult& result) {
  const char* why = nullptr;
  if (last_ && finite_steps_ == 0)
    why = "no step had a finite loss and gradient";
  else if (last_ && std::ssize(skipped_) == steps())
    why = "every step was skipped";
  else if (result.val_loss && !std::isfinite(*result.val_loss))
    why = "its validation loss is NaN or infinite";
  if (why) not_done_.emplace("training", fmt::format("it did not train: {}", why));
}

std::string Log::reasons() const {
  return fmt::format("{}", fmt::join(std::views::values(not_done_), "; "));
}

void write_plan(const RunOptions& options, const RunPlan& plan,
                const std::vector<nlohmann::json>& memory, const nlohmann::json& extra) {
  if (options.report.empty()) return;
  nlohmann::json report = plan_json(plan);
  report.update({{"run", run_json(options)}, {"plan_only", true}, {"memory", memory}});
  report["extra"] = extra.is_null() ? nlohmann::json::object() : extra;
  write_file(options.report, "--report", json_text(report, 2) + "\n");
}

void show_plan(const RunOptions& options, const RunPlan& plan, Comm* comm) {
  const int rank = comm ? comm->rank() : 0;
  const auto all = gather_json(comm, memory_json(rank, plan.predicted, /*measured=*/{}));
  if (rank != 0) return;
  if (!options.quiet) fmt::print("{}\n", plan_text(plan));
  write_plan(options, plan, all);
}

}  // namespace ladder
