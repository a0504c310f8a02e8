#include "common/run/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "common/comm/run_ranks.h"
#include "common/model/layout.h"
#include "common/run/tokenizer.h"
#include "kernels/math.h"

namespace ladder {
namespace {

using nlohmann::json;

// C's %a: exact, and the same text for the same bits.
std::string hex_float(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%a", value);
  return text.data();
}

// The shortest text that reads as the same number.
template <class Float>
std::string decimal(Float value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

/// nullopt: there is no loss, or nobody knows how many bytes it is over.
std::optional<double> bits(const std::optional<double>& loss, const TargetCount& over) {
  if (!loss || over.bytes == 0) return {};
  return bits_per_byte(*loss, over);
}
json or_null(const std::optional<double>& value) { return value ? json(*value) : json(); }

json model_json(const GptConfig& gpt) {
  return {{"name", gpt.name},         {"layers", gpt.layers},     {"heads", gpt.heads},
          {"kv_heads", gpt.groups()}, {"channels", gpt.channels}, {"hidden", gpt.expert_inner()},
          {"seq_len", gpt.seq_len},   {"vocab", gpt.vocab},       {"parameters", parameters(gpt)}};
}

json layout_json(const RunLayout& l) {
  json layout = {{"ranks", l.mesh.size()}, {"batch", l.batch},     {"micro_batch", l.micro_batch},
                 {"comm", l.comm},         {"threads", l.threads}, {"ep", l.experts}};
  for (const Axis axis : kAxes) layout[std::string(to_string(axis))] = l.mesh[axis];
  return layout;
}

std::string heads_text(const GptConfig& gpt) {
  if (gpt.groups() == gpt.heads) return fmt::format("{} heads", gpt.heads);
  return fmt::format("{} heads in {} groups", gpt.heads, gpt.groups());
}

std::string parameters_text(const GptConfig& gpt) {
  const int64_t all = parameters(gpt);
  if (!gpt.has_experts()) return fmt::format("{} parameters", all);
  return fmt::format("{} parameters, of which a token uses {}: {} of {} experts in each block", all,
                     all - gpt.layers * gpt.idle_matrices(), gpt.experts.chosen, gpt.experts.count);
}

std::string memory_row(std::string_view name, int64_t predicted, int64_t measured) {
  return fmt::format("\n  {:<16} {:>14} {:>14} {:>9.2f} MiB", name, predicted, measured,
                     mib(measured));
}

std::string device_rows(const RunPlan& plan, const RunResult& r) {
  std::string rows = fmt::format("\n{:<18} {}", "device", r.device);
  if (r.clock_mhz > 0) rows += fmt::format(", {} MHz", r.clock_mhz);
  if (const double share = mfu(plan, r); share > 0)
    rows += fmt::format("\n{:<18} {:>13.1f}% of {:.0f} TFLOP/s", "MFU", 100 * share,
                        peak_tflops(r.device));
  return rows;
}

std::string sent_text(const CommStatistics& sent) {
  std::string text;
  for (size_t i = 0; i < kNames<Operation>.size(); ++i)
    if (const OperationCount& count = sent.counts[i]; count.wire_bytes > 0)
      text += fmt::format("\n  {:<16} {:>14} {:>14} {:>9.2f} MiB", kNames<Operation>[i],
                          count.calls, count.wire_bytes, mib(count.wire_bytes));
  if (text.empty()) return text;
  return fmt::format("\n{:<18} {:>14} {:>14}", "sent", "calls", "bytes") + text;
}

}  // namespace

std::string loss_text(double loss) {
  return std::isnan(loss) ? "nan" : fmt::format("{:.4f}", loss);
}

std::string trace_line(const StepRecord& r, uint64_t param_hash) {
  std::string others, decimals;
  for (const auto& [name, value] : r.others) {
    others += fmt::format(R"("{}":"{}",)", name, hex_float(value));
    decimals += fmt::format(R"(,"{}":{})", name, decimal(value));
  }
  return fmt::format(
      R"({{"step":{},"loss":"{}","grad_norm":"{}","lr":"{}",{}"param_hash":"{:016x}",)"
      R"("decimal":{{"loss":{},"grad_norm":{},"lr":{}{}}}}})"
      "\n",
      r.step, hex_float(r.loss), hex_float(r.grad_norm), hex_float(r.lr), others, param_hash,
      decimal(r.loss), decimal(r.grad_norm), decimal(r.lr), decimals);
}

RunLayout run_layout(const RunOptions& run, int64_t micro_batch, const MeshShape& mesh) {
  const auto ep = std::ranges::find(run.flags, "--ep", &FlagValue::flag);
  return {.mesh = mesh,
          .batch = run.batch,
          .micro_batch = micro_batch,
          .threads = run.thread_count(),
          .experts = ep == run.flags.end() ? 1 : std::stoll(ep->value)};
}

double perplexity(double loss) { return math::exp(loss); }

int64_t parameters(const GptConfig& gpt) { return ParamLayout(gpt).live(); }

double peak_tflops(std::string_view device) {
  constexpr std::array<std::pair<std::string_view, double>, 6> kPeaks = {{{"B200", 2250},
                                                                          {"H200", 989},
                                                                          {"H100 PCIe", 756},
                                                                          {"H100 NVL", 835},
                                                                          {"H100", 989},
                                                                          {"A100", 312}}};
  for (const auto& [name, peak] : kPeaks)
    if (device.find(name) != std::string_view::npos) return peak;
  return 0;
}

double flops_per_token(const GptConfig& g) {
  return static_cast<double>(6 * (g.layers * g.block_matrices() + g.channels * g.padded_vocab) +
                             12 * g.layers * g.channels * g.seq_len);
}

int64_t devices(const RunPlan& plan) {
  const bool processes = plan.layout.comm == "mpi" || plan.layout.comm == "nccl";
  return processes ? plan.layout.mesh.size() : 1;
}

double mfu(const RunPlan& plan, const RunResult& result) {
  const double peak = peak_tflops(result.device);
  if (peak == 0) return 0;
  return result.tokens_per_second * flops_per_token(plan.gpt) /
         (1e12 * peak * static_cast<double>(devices(plan)));
}

json memory_json(int rank, const MemoryBytes& predicted,
                 const std::optional<MemoryBytes>& measured) {
  json memory = {{"rank", rank}};
  for (size_t i = 0; i < kMemCount; ++i)
    memory[std::string(kMemNames[i])] = {
        {"predicted", predicted.bytes[i]},
        {"measured", measured ? json(measured->bytes[i]) : json()}};
  return memory;
}

json comm_json(int rank, const CommStatistics& statistics) {
  json comm = {{"rank", rank}};
  for (size_t i = 0; i < kNames<Operation>.size(); ++i) {
    const OperationCount& count = statistics.counts[i];
    if (count.calls > 0)
      comm[kNames<Operation>[i]] = {{"calls", count.calls},
                                    {"payload_bytes", count.payload_bytes},
                                    {"wire_bytes", count.wire_bytes}};
  }
  return comm;
}

std::string plan_text(const RunPlan& plan) {
  const GptConfig& g = plan.gpt;
  const RunLayout& l = plan.layout;
  std::string memory;
  for (size_t i = 0; i < kMemCount; ++i)
    if (plan.predicted.bytes[i] != 0)
      memory += fmt::format("{} {:.2f} + ", kMemNames[i], mib(plan.predicted.bytes[i]));
  if (!memory.empty()) memory.replace(memory.size() - 2, 2, "= ");
  std::string axes;
  for (const Axis axis : kAxes) axes += fmt::format(", {} {}", to_string(axis), l.mesh[axis]);
  return fmt::format(
      "{}\n"
      "model   {}: {} layers, {}, {} channels, {} tokens, vocabulary {}{}; {}\n"
      "layout  ranks {}, threads {}{}; batch {}, micro-batch {}\n"
      "memory  {}{:.2f} MiB predicted",
      plan.chapter, g.name, g.layers, heads_text(g), g.channels, g.seq_len, g.vocab,
      g.tied_head ? ", tied head" : "", parameters_text(g), l.mesh.size(), l.threads, axes, l.batch,
      l.micro_batch, memory, mib(plan.predicted.total()));
}

std::string result_text(const RunPlan& plan, const RunResult& r) {
  const std::string loss = r.final_loss ? loss_text(*r.final_loss) : "none";
  const std::string val_loss = r.val_loss ? loss_text(*r.val_loss) : "none";
  const std::string choices = r.val_loss ? fmt::format("{:.4g}", perplexity(*r.val_loss)) : "none";
  const std::optional<double> val_bits = bits(r.val_loss, r.val_over);
  const std::string per_byte =
      val_bits ? fmt::format("\n{:<18} {:>14.4f}", "bits per byte", *val_bits) : "";
  std::string text = fmt::format(
      "{:<18} {:>14}\n"
      "{:<18} {:>14}\n"
      "{:<18} {:>14}\n"
      "{:<18} {:>14}\n"
      "{:<18} {:>14}{}\n"
      "{:<18} {:>14.0f}\n"
      "{:<18} {:>14.2f}\n"
      "{:<18} {:>14} {:>14}",
      "chapter", plan.chapter, "steps", r.steps, "training loss", loss, "validation loss", val_loss,
      "perplexity", choices, per_byte, "tokens/s", r.tokens_per_second, "median step, ms",
      r.step_ms_median, "peak bytes", "predicted", "measured");
  if (!r.device.empty()) text.insert(text.rfind('\n'), device_rows(plan, r));
  for (size_t i = 0; i < kMemCount; ++i) {
    const int64_t predicted = plan.predicted.bytes[i], measured = r.measured.bytes[i];
    if (predicted != 0 || measured != 0) text += memory_row(kMemNames[i], predicted, measured);
  }
  text += memory_row("total", plan.predicted.total(), r.measured.total());
  if (plan.layout.mesh.size() > 1) text += "\n  (of rank 0)";
  return text + sent_text(r.sent);
}

json run_json(const RunOptions& options) {
  json flags = json::object();
  for (const auto& [flag, value] : options.flags)
    if (flag.starts_with("--")) flags[flag] = value;
  return {{"command", options.command},
          {"host", machine_name()},
          {"lr", options.lr},
          {"seed", options.seed},
          {"flags", flags},
          {"tokenizer", options.text_tokenizer ? json(options.text_tokenizer->path) : json()},
          {"optimizer", flags.value("--optimizer", "sgd")}};  // chapter 01 has only this one
}

json plan_json(const RunPlan& plan) {
  return {{"chapter", plan.chapter},
          {"model", model_json(plan.gpt)},
          {"layout", layout_json(plan.layout)}};
}

json report_json(const RunPlan& plan, const RunResult& r) {
  json report = plan_json(plan);
  report.update({{"steps", r.steps},
                 {"tokens_per_second", r.tokens_per_second},
                 {"step_ms_median", r.step_ms_median},
                 {"device", r.device.empty() ? json() : json(r.device)},
                 {"clock_mhz", r.device.empty() ? json() : json(r.clock_mhz)},
                 {"mfu", mfu(plan, r) > 0 ? json(mfu(plan, r)) : json()},
                 {"final_loss", or_null(r.final_loss)},
                 {"final_bits_per_byte", or_null(bits(r.final_loss, r.final_over))},
                 {"targets_read", r.read.targets},
                 {"bytes_read", r.read.bytes},
                 {"val_loss", or_null(r.val_loss)},
                 {"perplexity", r.val_loss ? json(perplexity(*r.val_loss)) : json()},
                 {"bits_per_byte", or_null(bits(r.val_loss, r.val_over))},
                 {"val_targets", r.val_over.targets},
                 {"val_bytes", r.val_over.bytes}});
  return report;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

}  // namespace ladder
