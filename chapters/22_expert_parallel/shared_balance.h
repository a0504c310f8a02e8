// Chapter 21's Balance, for the loads of all ranks. The report also gets the modelled clock, which
// reads the same loads.
#pragma once

#include <cstdint>
#include <optional>

#include "chapters/21_moe/balance.h"
#include "chapters/22_expert_parallel/expert_clock.h"
#include "chapters/22_expert_parallel/expert_parallel.h"
#include "chapters/22_expert_parallel/owned_experts.h"

namespace ladder {

class SharedBalance : public Balance {
 public:
  SharedBalance(Arena& arena, const GptConfig& gpt, const BalanceOptions& options,
                const ExpertParallelOptions& parallel)
      : Balance(arena, gpt, options) {
    const PlacementOptions& placement = parallel.placement;
    if (gpt.experts.count > 0)
      clock_.emplace(placement.shape(gpt.experts.count, parallel.ep),
                     RowTime{.wire = placement.wire_time});
  }

  void count(const OwnedExperts& experts) {
    Balance::count(experts);
    if (clock_) clock_->count(loads());
  }
  void report(RunLog& log, int64_t weights) const {
    Balance::report(log, weights);
    if (clock_) clock_->report(log.extra());
  }

 private:
  std::optional<ExpertClock> clock_;  ///< none: the model has no experts
};

}  // namespace ladder
