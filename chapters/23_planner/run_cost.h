// What a training run costs: days, device-hours, money, energy, and the time lost to failures.
//
// A run writes a checkpoint every tau seconds, which takes delta seconds. So it loses delta / tau
// of its time to writing. It also loses tau / 2 for each failure, and there is one failure in mu
// seconds. The sum is least at tau = sqrt(2 delta mu) (Young, 1974). mu of N devices is that of one
// device, divided by N.
#pragma once

#include <cmath>
#include <cstdint>

#include "chapters/23_planner/device.h"
#include "chapters/23_planner/job.h"
#include "common/error.h"
#include "common/run/command_line.h"

namespace ladder::planner {

struct CostOptions {
  double train_tokens = 0;
  double price = 0;
  // 419 interruptions of 16,384 H100 in 54 days: arXiv 2407.21783, section 3.3.4.
  double mtbf_hours = 50000;
  double checkpoint_seconds = 30;

  void add_to(CommandLine& line) {
    line.group("Cost");
    line.add("--train-tokens", train_tokens, "of the whole run; 0: 20 for each parameter");
    line.add("--price", price, "of a device for an hour; 0: none is computed");
    line.add("--mtbf-hours", mtbf_hours, "of running between two failures of one device");
    line.add("--checkpoint-seconds", checkpoint_seconds, "that training waits for a checkpoint");
  }
  /// @throws UserError
  void check() const {
    const auto refuse = [](const char* flag, double value, const char* legal) {
      throw UserError("{} must be {}, not {}", flag, legal, value);
    };
    constexpr double kMost = 1e30;
    if (!(train_tokens >= 0 && train_tokens <= kMost))
      refuse("--train-tokens", train_tokens, "from 0 to 1e30");
    if (!(price >= 0 && price <= kMost)) refuse("--price", price, "from 0 to 1e30");
    if (!(mtbf_hours > 0 && mtbf_hours <= kMost))
      refuse("--mtbf-hours", mtbf_hours, "above 0, at most 1e30");
    if (!(checkpoint_seconds > 0 && checkpoint_seconds <= kMost))
      refuse("--checkpoint-seconds", checkpoint_seconds, "above 0, at most 1e30");
  }
};

struct RunCost {
  double tokens, steps;
  double days;          ///< of steps only
  double interval;      ///< seconds between checkpoints
  double lost;          ///< share of the time lost to checkpoints and failures
  double device_hours;  ///< including what is lost
  double money, megawatt_hours;
};

/// @param parameters those of the model, for a run whose tokens are not given
inline RunCost run_cost(const Job& job, const Device& device, const CostOptions& o,
                        double step_seconds, int64_t parameters) {
  const auto gpus = static_cast<double>(job.gpus);
  RunCost cost{};
  cost.tokens = o.train_tokens > 0 ? o.train_tokens : 20 * static_cast<double>(parameters);
  cost.steps = std::ceil(cost.tokens / static_cast<double>(job.tokens()));
  const double seconds = cost.steps * step_seconds, failures = o.mtbf_hours * 3600 / gpus;
  cost.days = seconds / 86400;
  cost.interval = std::sqrt(2 * o.checkpoint_seconds * failures);
  cost.lost = o.checkpoint_seconds / cost.interval + cost.interval / 2 / failures;
  cost.device_hours = gpus * seconds * (1 + cost.lost) / 3600;
  cost.money = cost.device_hours * o.price;
  cost.megawatt_hours = cost.device_hours * device.watts / 1e6;
  return cost;
}

}  // namespace ladder::planner
