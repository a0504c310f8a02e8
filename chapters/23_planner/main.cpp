// 23_planner: does it fit, how long does it take, what does it cost, and which layout is best? It
// trains nothing: it puts the formulas of the chapters before together.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "chapters/23_planner/answer.h"
#include "chapters/23_planner/command.h"
#include "chapters/23_planner/decode_time.h"
#include "chapters/23_planner/device.h"
#include "chapters/23_planner/law_file.h"
#include "chapters/23_planner/plan_options.h"
#include "chapters/23_planner/plan_report.h"
#include "chapters/23_planner/scaling_law.h"
#include "chapters/23_planner/search.h"
#include "chapters/23_planner/usual_memory.h"
#include "common/error.h"
#include "common/model/layout.h"
#include "common/output_file.h"
#include "common/own_place.h"
#include "common/run/command_line.h"
#include "common/run/run_main.h"

namespace ladder::planner {
namespace {

// ---- 1. options ---------------------------------------------------------------------------------

struct Options {
  Question question;
  std::string report, law;
  bool decode = false;
  int64_t show = 10;

  void add_to(CommandLine& line) {
    line.group("Output");
    line.add("--show", show, "layouts in the table");
    line.add("--decode", decode,
             "print how fast one device writes texts with the model (chapter 31), and stop");
    line.add("--report", report,
             "the 100 fastest layouts (--show, if it is more) and the front, as JSON");
    line.add("--law", law, "for --compute: a law of your own runs, a file that chapter 34 writes");
  }
  /// @throws UserError
  void check() const {
    require_range("--show", show, 1, 1000);
    if ((decode || question.job.flops > 0) && !report.empty())
      throw UserError("--report is of a plan, which --compute and --decode do not make");
    if (decode && question.job.flops > 0)
      throw UserError("--decode and --compute: two questions; legal is one of them");
    if (!law.empty() && question.job.flops == 0) throw UserError("--law is for --compute");
  }
};

Options parse_options(int argc, char** argv) {
  Options o;
  // LADDER_DEVICES: the folder devices/ beside this file, from CMake.
  o.question.job.known_devices = device_names(LADDER_DEVICES);
  o.question.read(argc, argv, o);
  require_own_place({"--report", o.report}, {{"--device", o.question.job.device}});
  return o;
}

// ---- 2. layout ----------------------------------------------------------------------------------

void print_layouts(const Answer& a, int64_t show) {
  const auto& plans = a.found.plans;
  fmt::print("{}: {} parameters, {} tokens a step on {} x {}\n", a.job.gpt.name,
             ParamLayout(a.job.gpt).live(), a.job.tokens(), a.job.gpus, a.device.name);
  fmt::print("{}\n{}", pruned_text(a.device, a.found),
             layouts_text(a.job, a.device, plans, static_cast<size_t>(show)));
  for (size_t i = 0; i < 5 && i + 1 < plans.size(); ++i)
    fmt::print("{}. {}\n", i + 1, reason(plans[i], plans[i + 1]));
}

// ---- 3. memory ----------------------------------------------------------------------------------

void print_memory(const Question& question, const Answer& a) {
  const PlanLayout& layout = a.best().layout;
  fmt::print("\nfastest: {}\n{}", layout.text(), memory_text(a.best(), a.ladder));
  if (!a.ladder.chapter.empty())
    fmt::print("run: {}\n", ladder_command(question, a.job, layout, a.ladder.chapter));
}

void print_smaller(const Answer& a) {
  constexpr double kStep = 0.95;
  fmt::print("no other is faster and smaller; from row to row at least 5% smaller:\n");
  double most = std::numeric_limits<double>::infinity();
  for (const Plan* plan : pareto(a.found.plans)) {
    const auto bytes = static_cast<double>(plan->bytes());
    if (bytes > most) continue;
    most = kStep * bytes;
    fmt::print("  {:>11} {:>10}  {}\n", time_text(plan->seconds()), size_text(plan->bytes()),
               plan->layout.text());
  }
}

// ---- 4. data ------------------------------------------------------------------------------------

/// Prints the model on which a budget is best spent. With tokens of inference it also prints the
/// model of the same loss that takes the fewest operations in training and use together.
/// @param own the name of a file with a law, or empty
void print_optimum(double flops, double inference_tokens, const std::string& own) {
  std::vector<std::pair<std::string, LossLaw>> laws{{"Chinchilla 3", kHoffmann},
                                                    {"Besiroglu", kBesiroglu}};
  if (!own.empty()) laws.emplace_back(own, read_law(own));
  const auto row = [](std::string_view name, const Optimum& at) {
    return fmt::format("{:<42} {:>12.3g} {:>12.3g} {:>8.1f}", name, at.parameters, at.tokens,
                       at.tokens_a_parameter());
  };
  fmt::print("{:.3g} operations are best spent on\n{:<42} {:>12} {:>12} {:>8}\n", flops, "",
             "parameters", "tokens", "ratio");
  for (const auto& [name, at] : approaches(flops)) fmt::print("{}\n", row(name, at));
  if (!own.empty()) {
    const Optimum at = optimum(laws.back().second, flops);
    fmt::print("{}  loss {:.4f}\n", row(own, at),
               laws.back().second.loss(at.parameters, at.tokens));
  }
  if (inference_tokens == 0) return;
  fmt::print("at the same loss, and with {:.3g} tokens of inference, the least in all is\n",
             inference_tokens);
  for (const auto& [name, law] : laws) {
    const Optimum at = served(law, flops, inference_tokens);
    fmt::print("{}  {:.3g} operations for training, {:.3g} in all, {:.3g} for the optimum above\n",
               row(name, at), lifetime(at, 0), lifetime(at, inference_tokens),
               lifetime(optimum(law, flops), inference_tokens));
  }
}

// ---- 5. step ------------------------------------------------------------------------------------

void print_step(const Answer& a, double price) {
  const auto [rate, mfu, hfu, causal] = speed_of(a.job, a.device, a.best());
  fmt::print(
      "{}{:.0f} tokens a second, MFU {:.1f}%, HFU {:.1f}% (with half of attention {:.1f}%)\n{}",
      terms_text(a.best()), rate, 100 * mfu, 100 * hfu, 100 * causal, cost_text(a.cost, price));
}

// ---- 6. report ----------------------------------------------------------------------------------

void write_report(const Answer& a, const std::string& name) {
  if (name.empty()) return;
  OutputFile file(name, "--report");
  file.write(report_json(a).dump(2) + "\n");
  file.commit();
}

void plan(const Options& o) {
  const JobOptions& job = o.question.job;
  if (job.flops > 0) return print_optimum(job.flops, job.inference_tokens, o.law);
  Device device = read_device(LADDER_DEVICES, job.device);
  if (o.decode) {
    if (job.reserve) device.reserve = job.reserved_bytes();
    fmt::print("{}", decode_text(o.question.asked(), device));
    return;
  }
  const Answer a = answer(o.question, device, static_cast<size_t>(std::max<int64_t>(100, o.show)));
  write_report(a, o.report);
  print_layouts(a, o.show);
  print_memory(o.question, a);
  print_step(a, o.question.cost.price);
  print_smaller(a);
}

}  // namespace
}  // namespace ladder::planner

int main(int argc, char** argv) {
  return ladder::run_main(
      [&] { ladder::planner::plan(ladder::planner::parse_options(argc, argv)); });
}
