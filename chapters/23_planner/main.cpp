// 23_planner: does it fit, how long does it take, what does it cost, and which layout is best? It
// trains nothing: it puts the formulas of the chapters before together.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/16_fp8/fp8.h"
#include "chapters/23_planner/device.h"
#include "chapters/23_planner/explain.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/ladder_memory.h"
#include "chapters/23_planner/plan_report.h"
#include "chapters/23_planner/run_cost.h"
#include "chapters/23_planner/scaling_law.h"
#include "chapters/23_planner/search.h"
#include "common/error.h"
#include "common/run/command_line.h"
#include "common/run/options.h"
#include "common/run/output_file.h"
#include "common/run/report.h"
#include "common/run/run_main.h"

namespace ladder::planner {
namespace {

// ---- 1. options ---------------------------------------------------------------------------------

/// The model and the machine.
struct JobOptions {
  RunOptions run;  // --model and what overrides it, --batch
  std::string device = "h100";
  int64_t gpus = 8;
  Gradients gradients = Gradients::Fp32;
  bool no_sequence_parallel = false;
  double flops = 0;

  void add_to(CommandLine& line) {
    line.group("Model");
    line.add("--model", run.model, fmt::format("one of {}", fmt::join(preset_names(), ", ")));
    const FlagRules of_model{.shown_default = "the model's"};
    line.add("--seq-len", run.seq_len, "tokens of a sequence", of_model);
    line.add("--layers", run.layers, "blocks", of_model);
    line.add("--heads", run.heads, "attention heads", of_model);
    line.add("--channels", run.channels, "width of the residual stream", of_model);
    line.add("--vocab", run.vocab, "tokens that there are", of_model);
    line.add("--batch", run.batch, "sequences of a step, over all devices");
    line.group("Machine");
    line.add("--gpus", gpus, "devices in all");
    line.add(
        "--device", device,
        fmt::format("one of {}, or a file .toml", fmt::join(device_names(LADDER_DEVICES), ", ")));
    line.group("23_planner");
    line.add("--gradients", gradients,
             "what the usual accounting has of them beside 16-bit weights: fp32 (18 bytes a "
             "parameter), 16-bit (16) or both (20)");
    line.add("--no-sequence-parallel", no_sequence_parallel,
             "tensor ranks do not share tokens between the layers");
    line.add("--compute", flops,
             "operations of a whole run: print which model and how many tokens they are best spent "
             "on, and stop; 0: plan");
  }
  /// @throws UserError
  void check() {
    run.plan_only = run.takes_experts = true;
    for (const auto& [flag, value] : {std::pair{"--gpus", gpus}, {"--batch", run.batch}})
      if (value < 1 || value > 1 << 20)
        throw UserError("{} must be from 1 to {}, not {}", flag, 1 << 20, value);
    if (!(flops == 0 || (flops >= 1e6 && flops <= 1e40)))
      throw UserError("--compute must be 0, or from 1e6 to 1e40, not {}", flops);
    run.check_size(gpus);
  }
};

/// What the search may not choose.
struct LayoutOptions {
  int64_t tp = 0, pp = 0, dp = 0, cp = 0, ep = 0, micro_batch = 0, chunks = 0;
  int64_t zero = -1;
  std::string recompute, schedule;

  void add_to(CommandLine& line) {
    line.group("Layout: what is not given is searched");
    const FlagRules any{.shown_default = "any"};
    line.add("--tp", tp, "ranks that share each layer", any);
    line.add("--pp", pp, "stages", any);
    line.add("--dp", dp, "ranks that share the batch", any);
    line.add("--cp", cp, "ranks that share each sequence", any);
    line.add("--ep", ep, "ranks that share the experts, of those of dp and cp", any);
    line.add("--zero", zero, "stage of ZeRO, 0 to 3", any);
    line.add("--recompute", recompute, "a policy of chapter 06", any);
    line.add("--micro-batch", micro_batch, "sequences of one forward", any);
    line.add("--schedule", schedule, "gpipe, 1f1b, interleaved or zb-h1", any);
    line.add("--chunks", chunks, "parts of the model on a stage, for interleaved", any);
  }
  /// @throws UserError
  void check() const {
    for (const auto& [flag, value] : {std::pair{"--tp", tp},
                                      {"--pp", pp},
                                      {"--dp", dp},
                                      {"--cp", cp},
                                      {"--ep", ep},
                                      {"--micro-batch", micro_batch},
                                      {"--chunks", chunks}})
      if (value < 0 || value > 1 << 20)
        throw UserError("{} must be from 1 to {}, or 0 for any, not {}", flag, 1 << 20, value);
    if (zero < -1 || zero > 3) throw UserError("--zero must be from 0 to 3, not {}", zero);
    if (!schedule.empty() && !named<PipelineKind>(schedule))
      throw UserError("--schedule {}; legal are {}", schedule,
                      fmt::join(kNames<PipelineKind>, ", "));
  }

  Fixed fixed(const GptConfig& gpt) const {
    const auto given = [](int64_t n) { return n > 0 ? std::optional(n) : std::nullopt; };
    Fixed f{.tp = given(tp),
            .pp = given(pp),
            .dp = given(dp),
            .cp = given(cp),
            .ep = given(ep),
            .micro_batch = given(micro_batch),
            .chunks = given(chunks),
            .schedule = named<PipelineKind>(schedule)};
    if (zero >= 0) f.zero = zero;
    if (recompute.empty()) return f;
    Recompute(recompute, gpt.layers);  // throws unless it is legal
    f.recompute = recompute;
    return f;
  }
};

struct Options {
  JobOptions job;
  LayoutOptions layout;
  Fp8Options precision{{.name = "bf16"}};
  CostOptions cost;
  std::string explain, report;
  int64_t show = 10;

  void add_to(CommandLine& line) {
    line.group("Output");
    line.add("--show", show, "layouts in the table");
    line.add("--explain", explain, "a number, as mfu, bubble or Activation: its formula");
    line.add("--report", report, "all layouts that fit, as JSON");
  }
  /// @throws UserError
  void check() const {
    if (show < 1) throw UserError("--show must be at least 1, not {}", show);
    if (!explain.empty()) explanation_of(explain);
  }
};

Options parse_options(int argc, char** argv) {
  Options o;
  CommandLine("23_planner: memory, time and cost of any layout, and which is best")
      .read(argc, argv, o.job, o.layout, o.precision, o.cost, o);
  return o;
}

// ---- 2. layout ----------------------------------------------------------------------------------

Job job_of(const Options& o) {
  return {.gpt = o.job.run.gpt(),
          .gpus = o.job.gpus,
          .batch = o.job.run.batch,
          .precision = o.precision,
          .gradients = o.job.gradients,
          .sequence_parallel = !o.job.no_sequence_parallel};
}

// ---- 3. memory ----------------------------------------------------------------------------------

/// @throws UserError saying what takes the least, and the cheapest change after which it fits
[[noreturn]] void refuse(const Job& job, const Device& device, const Fixed& fixed,
                         const Found& found) {
  if (!found.least) throw UserError("no layout is legal: {}", found.why.c_str());
  const std::optional<Change> change = cheapest_change(job, device, fixed);
  const std::string advice = change
                                 ? fmt::format("{} does: {:.2f} s a step with {}", change->text,
                                               change->plan.seconds(), change->plan.layout.text())
                                 : "nor with more devices";
  throw UserError("none of {} layouts fits {} of {}; the least takes {}, {}; {}", found.legal,
                  gib(device.room()).c_str(), device.name, gib(found.least->bytes()).c_str(),
                  found.least->layout.text().c_str(), advice.c_str());
}

// ---- 4. data ------------------------------------------------------------------------------------

Device device_of(const Options& o) {
  const Device device = read_device(LADDER_DEVICES, o.job.device);
  if (o.precision.fp8() && device.fp8 == 0)
    throw UserError("--precision fp8: {} has no peak for it; legal are fp32, bf16 and fp16",
                    device.name);
  return device;
}

// ---- 5. step ------------------------------------------------------------------------------------

/// Which model a budget is best spent on.
void print_optimum(double flops) {
  fmt::print("{:.3g} operations are best spent on\n{:<42} {:>12} {:>12} {:>8}\n", flops, "",
             "parameters", "tokens", "ratio");
  for (const Approach& a : approaches(flops))
    fmt::print("{:<42} {:>12.3g} {:>12.3g} {:>8.1f}\n", a.name, a.at.parameters, a.at.tokens,
               a.at.tokens_a_parameter());
}

// ---- 6. report ----------------------------------------------------------------------------------

/// What is known of the fastest plan.
struct Best {
  const Plan& plan;
  LadderBytes ladder;
  RunCost cost;
};

std::string value_of(const Job& job, const Device& device, const Best& best,
                     std::string_view name) {
  for (size_t i = 0; i < kMemCount; ++i)
    if (kMemNames[i] == name) return fmt::format("{} bytes", best.plan.memory.bytes.bytes[i]);
  if (const auto term = named<Term>(name))
    return fmt::format("{:.4g} s", best.plan.step.terms[*term]);
  const auto [rate, mfu, hfu, causal] = speed_of(job, device, best.plan);
  if (name == "mfu") return fmt::format("{:.1f}%", 100 * mfu);
  if (name == "hfu") return fmt::format("{:.1f}%", 100 * hfu);
  if (name == "days") return fmt::format("{:.2f}", best.cost.days);
  if (name == "interval") return fmt::format("{:.0f} s", best.cost.interval);
  return fmt::format("{:.4g} s", best.plan.seconds());
}

void print_plans(const Options& o, const Job& job, const Device& device, const Found& found,
                 const Best& best) {
  const auto [rate, mfu, hfu, causal] = speed_of(job, device, best.plan);
  fmt::print("{}: {} parameters, {} tokens a step on {} x {}\n", job.gpt.name, parameters(job.gpt),
             job.tokens(), job.gpus, device.name);
  fmt::print("{} of {} layouts fit {}:\n{}", found.plans.size(), found.legal, gib(device.room()),
             layouts_text(job, device, found.plans, static_cast<size_t>(o.show)));
  for (size_t i = 0; i < 5 && i + 1 < found.plans.size(); ++i)
    fmt::print("{}. {}\n", i + 1, reason(found.plans[i], found.plans[i + 1]));
  fmt::print("\nfastest: {}\n{}{}", best.plan.layout.text(), memory_text(best.plan, best.ladder),
             terms_text(best.plan));
  fmt::print(
      "{:.0f} tokens a second, MFU {:.1f}%, HFU {:.1f}% (with half of attention {:.1f}%)\n{}", rate,
      100 * mfu, 100 * hfu, 100 * causal, cost_text(best.cost, o.cost.price));
  const Plan& small = smallest_of_fast(found.plans);
  fmt::print("within 1% of it with least memory: {:.2f} s, {}, {}\n", small.seconds(),
             gib(small.bytes()), small.layout.text());
  fmt::print("no other is faster and smaller:\n");
  for (const Plan* plan : pareto(found.plans))
    fmt::print("  {:>9.2f} s {:>10}  {}\n", plan->seconds(), gib(plan->bytes()),
               plan->layout.text());
}

void write_report(const std::string& name, const Job& job, const Device& device, const Found& found,
                  const Best& best) {
  nlohmann::json report = {{"chapter", "23_planner"},
                           {"model", job.gpt.name},
                           {"parameters", parameters(job.gpt)},
                           {"gpus", job.gpus},
                           {"device", device.name},
                           {"batch", job.batch},
                           {"seq_len", job.gpt.seq_len},
                           {"precision", job.precision.name},
                           {"room", device.room()},
                           {"legal", found.legal}};
  report["memory"] = {{"usual", bytes_json(best.plan.memory.bytes)}, {"ladder", nullptr}};
  if (!best.ladder.chapter.empty())
    report["memory"]["ladder"] = {{"chapter", best.ladder.chapter},
                                  {"bytes", bytes_json(best.ladder.bytes)}};
  report["cost"] = {{"days", best.cost.days},
                    {"device_hours", best.cost.device_hours},
                    {"price", best.cost.money},
                    {"megawatt_hours", best.cost.megawatt_hours},
                    {"checkpoint_interval_seconds", best.cost.interval},
                    {"lost", best.cost.lost}};
  for (const Plan& plan : found.plans) report["layouts"].push_back(layout_json(job, device, plan));
  for (const Plan* plan : pareto(found.plans))
    report["pareto"].push_back(plan - found.plans.data());  // its number in `layouts`
  OutputFile file(name, "--report");
  file.write(report.dump(2) + "\n");
  file.commit();
}

void plan(const Options& o) {
  if (o.job.flops > 0) return print_optimum(o.job.flops);
  const Device device = device_of(o);
  const Job job = job_of(o);
  const Fixed fixed = o.layout.fixed(job.gpt);
  Search search(job, device);
  const Found found = search.find(fixed);
  if (found.plans.empty()) refuse(job, device, fixed, found);
  const Plan& fastest = found.plans.front();
  const Best best{fastest, ladder_bytes(job, fastest.layout),
                  run_cost(job, device, o.cost, fastest.seconds(), parameters(job.gpt))};
  if (!o.report.empty()) write_report(o.report, job, device, found, best);
  if (o.explain.empty()) return print_plans(o, job, device, found, best);
  fmt::print("{}", explained(explanation_of(o.explain), value_of(job, device, best, o.explain),
                             letters(job, device, fastest, search.sizes())));
}

}  // namespace
}  // namespace ladder::planner

int main(int argc, char** argv) {
  return ladder::run_main(
      [&] { ladder::planner::plan(ladder::planner::parse_options(argc, argv)); });
}
