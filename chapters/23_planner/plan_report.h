// What the planner found, for the screen and for --report.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chapters/23_planner/device.h"
#include "chapters/23_planner/flops.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/ladder_memory.h"
#include "chapters/23_planner/run_cost.h"
#include "chapters/23_planner/search.h"
#include "kernels/arena.h"

namespace ladder::planner {

/// How well a plan uses a machine.
struct Speed {
  double tokens_per_second, mfu, hfu;
  double causal;  ///< MFU with half of attention, which a causal kernel computes
};

inline Speed speed_of(const Job& job, const Device& device, const Plan& plan) {
  const double rate = static_cast<double>(job.tokens()) / plan.seconds();
  const double peak = device.peak(job.precision.name);
  const Recompute recompute = recompute_of(job, plan.layout);
  const auto share = [&](int64_t blocks) {
    const int64_t all = job.gpt.layers / (plan.layout.pp * plan.layout.chunks);
    return static_cast<double>(blocks) / static_cast<double>(all);
  };
  const double hardware =
      hardware_flops(job.gpt, share(recompute.blocks_again()), share(recompute.attention_again()));
  return {rate, utilisation(model_flops(job.gpt), rate, job.gpus, peak),
          utilisation(hardware, rate, job.gpus, peak),
          utilisation(causal_flops(job.gpt), rate, job.gpus, peak)};
}

/// In GiB, and what is less than one in MiB.
inline std::string size_text(int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return bytes < 1 << 30 ? fmt::format("{:.1f} MiB", size / (1 << 20))
                         : fmt::format("{:.1f} GiB", size / (1 << 30));
}
/// Seconds, or milliseconds for a step of less than a second and its parts.
struct TimeUnit {
  double seconds;
  const char* name;

  explicit TimeUnit(double step) : seconds(step < 1 ? 1e-3 : 1), name(step < 1 ? "ms" : "s") {}
  double of(double time) const { return time / seconds; }
};
inline std::string time_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.2f} s", seconds);
}

/// What tensors may take, and what of the device they may not.
inline std::string room_text(const Device& device) {
  std::string text = fmt::format("{} of {} ({:.2f} of its memory", size_text(device.room()),
                                 device.name, device.usable);
  if (device.reserve > 0)
    text += fmt::format(", less {} for NCCL: --reserve",
                        size_text(static_cast<int64_t>(device.reserve)));
  return text + ")";
}

/// How many layouts there are, and why most of them are not ranked.
inline std::string pruned_text(const Device& device, const Found& found) {
  return fmt::format(
      "{} of {} legal layouts are ranked: the fastest, and those of which no other is faster and "
      "smaller. Left out: {} take more than {}; {} have another of the same ranks, schedule, "
      "micro-batch and ZeRO that is no slower and no larger; {} are slower, as a bound of their "
      "time says",
      found.plans.size(), found.legal, found.too_large, room_text(device), found.beaten,
      found.too_slow);
}

/// Rows for the first `most` of `plans`.
inline std::string layouts_text(const Job& job, const Device& device,
                                const std::vector<Plan>& plans, size_t most) {
  constexpr const char* kRow =
      "{:>4} {:>4} {:>5} {:>4} {:>4} {:>4} {:>10} {:>5} {:>14} {:>10} {:>8} {:>6}\n";
  std::string text = fmt::format(fmt::runtime(kRow), "tp", "pp", "dp", "cp", "ep", "zero",
                                 "recompute", "micro", "schedule", "bytes", "seconds", "mfu");
  for (size_t i = 0; i < std::min(most, plans.size()); ++i) {
    const Plan& plan = plans[i];
    const PlanLayout& l = plan.layout;
    std::string schedule = l.pp == 1 ? "-" : std::string(to_string(l.schedule));
    if (l.chunks > 1) schedule += fmt::format(" x{}", l.chunks);
    text += fmt::format(
        fmt::runtime(kRow), l.tp, l.pp, l.dp, l.cp, l.ep,
        l.replicas > 1 ? fmt::format("3 x{}", l.replicas) : fmt::format("{}", l.zero), l.recompute,
        l.micro_batch, schedule, size_text(plan.bytes()), fmt::format("{:.3g}", plan.seconds()),
        fmt::format("{:.1f}%", 100 * speed_of(job, device, plan).mfu));
  }
  return text;
}

/// "0.310 s less than the next: bubble -0.400 tensor +0.090": the terms that cause the difference.
inline std::string reason(const Plan& better, const Plan& next) {
  const double saved = next.seconds() - better.seconds(), least = 1e-3 * next.seconds();
  const int64_t more = better.bytes() - next.bytes();
  if (saved < least)
    return fmt::format("as fast as the next within 0.1%, with {} {}",
                       size_text(std::max(more, -more)), more > 0 ? "more" : "less");
  std::vector<std::pair<double, std::string_view>> terms;
  for (size_t i = 0; i < kTerms; ++i)
    terms.emplace_back(better.step.terms.terms[i] - next.step.terms.terms[i], kNames<Term>[i]);
  const auto size = [](const auto& term) { return std::max(term.first, -term.first); };
  std::ranges::sort(terms, std::greater{}, size);
  const TimeUnit unit(next.seconds());
  std::string text = fmt::format("{:.3f} {} less than the next:", unit.of(saved), unit.name);
  for (size_t i = 0; i < 3; ++i)
    if (i == 0 || size(terms[i]) > least)
      text += fmt::format(" {} {:+.3f}", terms[i].second, unit.of(terms[i].first));
  return text;
}

/// Both accountings of the rank that takes most, by category.
inline std::string memory_text(const Plan& plan, const LadderBytes& ladder) {
  std::string text = fmt::format("memory of stage {}, bytes\n{:>12} {:>16} {:>16}\n",
                                 plan.memory.stage, "", "usual", "Ladder");
  const auto row = [&](std::string_view name, int64_t usual, int64_t own) {
    text += fmt::format("{:>12} {:>16} {:>16}\n", name, usual,
                        ladder.chapter.empty() ? "-" : fmt::format("{}", own));
  };
  for (size_t i = 0; i < kMemCount; ++i)
    row(kMemNames[i], plan.memory.bytes.bytes[i], ladder.bytes.bytes[i]);
  row("in all", plan.bytes(), ladder.bytes.total());
  return text + (ladder.chapter.empty()
                     ? fmt::format("Ladder: -, as {}\n", ladder.why)
                     : fmt::format("Ladder: {}. It sums micro-batches in a tree of "
                                   "FP32 buffers, so that all layouts have the same bits; usual is "
                                   "one running buffer.\n",
                                   ladder.chapter));
}

inline std::string terms_text(const Plan& plan) {
  const TimeUnit unit(plan.seconds());
  std::string text =
      fmt::format("step {:.3f} {}, of the slowest stage {}:", unit.of(plan.seconds()), unit.name,
                  plan.step.slowest);
  for (size_t i = 0; i < kTerms; ++i)
    text += fmt::format("{} {} {:.3f}", i == 0 ? "" : ",", kNames<Term>[i],
                        unit.of(plan.step.terms.terms[i]));
  if (plan.seconds() >= 1) return text + "\n";
  return text +
         "\nkernel launches are not counted: a small model may wait for them longer than it "
         "computes\n";
}

inline std::string cost_text(const RunCost& cost, double price) {
  return fmt::format(
      "run of {:.3g} tokens: {:.0f} steps, {:.1f} days, and {:.1f}% more for failures and "
      "checkpoints (one every {:.0f} s); {:.0f} device-hours, {:.0f} MWh of the devices alone{}\n",
      cost.tokens, cost.steps, cost.days, 100 * cost.lost, cost.interval, cost.device_hours,
      cost.megawatt_hours, price > 0 ? fmt::format(", price {:.0f}", cost.money) : "");
}

inline nlohmann::json bytes_json(const MemoryBytes& bytes) {
  nlohmann::json json;
  for (size_t i = 0; i < kMemCount; ++i) json[kMemNames[i]] = bytes.bytes[i];
  return json;
}

inline nlohmann::json layout_json(const Job& job, const Device& device, const Plan& plan) {
  const PlanLayout& l = plan.layout;
  const auto [rate, mfu, hfu, causal] = speed_of(job, device, plan);
  nlohmann::json terms;
  for (size_t i = 0; i < kTerms; ++i) terms[kNames<Term>[i]] = plan.step.terms.terms[i];
  return {{"tp", l.tp},
          {"pp", l.pp},
          {"dp", l.dp},
          {"cp", l.cp},
          {"ep", l.ep},
          {"zero", l.zero},
          {"replicas", l.replicas},
          {"recompute", l.recompute},
          {"micro_batch", l.micro_batch},
          {"schedule", to_string(l.schedule)},
          {"chunks", l.chunks},
          {"bytes", plan.bytes()},
          {"memory", bytes_json(plan.memory.bytes)},
          {"step_seconds", plan.seconds()},
          {"tokens_per_second", rate},
          {"mfu", mfu},
          {"hfu", hfu},
          {"mfu_causal", causal},
          {"seconds", terms}};
}

}  // namespace ladder::planner
