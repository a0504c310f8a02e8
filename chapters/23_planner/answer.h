// The answer to a question: all plans that fit, and more about the fastest.
#pragma once

#include <cstddef>
#include <utility>

#include <nlohmann/json.hpp>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/23_planner/candidates.h"
#include "chapters/23_planner/device.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/ladder_memory.h"
#include "chapters/23_planner/plan_options.h"
#include "chapters/23_planner/plan_report.h"
#include "chapters/23_planner/run_cost.h"
#include "chapters/23_planner/search.h"
#include "common/error.h"
#include "common/model/layout.h"
#include "kernels/arena.h"

namespace ladder::planner {

struct Answer {
  Device device;
  Job job;
  Found found;  ///< at least one plan
  LadderBytes ladder;
  RunCost cost;

  const Plan& best() const { return found.plans.front(); }
};

/// @throws UserError that names the smallest plan
[[noreturn]] inline void refuse(const Job& job, const Device& device, const Fixed& fixed,
                                const Found& found) {
  if (found.legal == 0) throw UserError("no layout is legal: {}", why_none(job, fixed).c_str());
  throw UserError("none of {} layouts fits {}; the least takes {}, {}", found.legal,
                  room_text(device).c_str(), size_text(found.least->bytes()).c_str(),
                  found.least->layout.text().c_str());
}

/// @param fastest how many plans, in addition to those of which no other is both faster and smaller
/// @throws UserError if nothing fits, or if the device cannot compute in this precision
inline Answer answer(const Question& question, Device device, size_t fastest = 100) {
  device.reserve = question.job.reserved_bytes();
  if (question.precision.fp8() && device.fp8 == 0)
    throw UserError("--precision fp8: {} has no peak for it; legal are fp32, bf16 and fp16",
                    device.name);
  const Job job = question.asked();
  const Fixed& fixed = question.layout.fixed;
  if (fixed.recompute) Recompute(*fixed.recompute, job.gpt.layers);  // throws unless it is legal
  Found found = Search(job, device).find(fixed, {.fastest = fastest});
  if (found.plans.empty()) refuse(job, device, fixed, found);
  const Plan& best = found.plans.front();
  const LadderBytes ladder = ladder_bytes(job, best.layout);
  const RunCost cost =
      run_cost(job, device, question.cost, best.seconds(), ParamLayout(job.gpt).live());
  return {device, job, std::move(found), ladder, cost};
}

/// The content of --report.
inline nlohmann::json report_json(const Answer& a) {
  const auto& [device, job, found, ladder, cost] = a;
  nlohmann::json report = {{"chapter", "23_planner"},
                           {"model", job.gpt.name},
                           {"parameters", ParamLayout(job.gpt).live()},
                           {"gpus", job.gpus},
                           {"device", device.name},
                           {"batch", job.batch},
                           {"seq_len", job.gpt.seq_len},
                           {"precision", job.precision.name},
                           {"room", device.room()},
                           {"legal", found.legal},
                           {"too_large", found.too_large},
                           {"beaten", found.beaten},
                           {"too_slow", found.too_slow}};
  report["memory"] = {{"usual", bytes_json(a.best().memory.bytes)}, {"ladder", nullptr}};
  if (!ladder.chapter.empty())
    report["memory"]["ladder"] = {{"chapter", ladder.chapter}, {"bytes", bytes_json(ladder.bytes)}};
  report["cost"] = {{"days", cost.days},
                    {"device_hours", cost.device_hours},
                    {"price", cost.money},
                    {"megawatt_hours", cost.megawatt_hours},
                    {"lost", cost.lost}};
  for (const Plan& plan : found.plans) report["layouts"].push_back(layout_json(job, device, plan));
  for (const Plan* plan : pareto(found.plans))
    report["pareto"].push_back(plan - found.plans.data());  // its number in `layouts`
  return report;
}

}  // namespace ladder::planner
