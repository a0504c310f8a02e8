// --memory-limit: a plan that does not fit is refused before a byte is taken, and the policy that
// fits at least cost is named.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "chapters/06_checkpointing/recompute.h"
#include "common/error.h"
#include "common/run/log.h"

namespace ladder {

/// @param bytes_of bytes that the plan would take under a policy: int64_t(const std::string&)
/// @param rank     that checks: rank 0 alone prints
/// @param layers   on which a policy works; 0: all of the model
/// @throws UserError if the plan is over `limit` (bytes; 0: none), after printing it
template <class BytesOf>
void check_memory_limit(const RunPlan& plan, uint64_t limit, BytesOf&& bytes_of, int rank = 0,
                        int64_t layers = 0) {
  const int64_t planned = plan.predicted.total(), most = static_cast<int64_t>(limit);
  if (most == 0 || planned <= most) return;
  if (rank == 0) fmt::print("{}\n", plan_text(plan));
  for (const std::string& policy : Recompute::all(layers == 0 ? plan.gpt.layers : layers)) {
    const int64_t bytes = bytes_of(policy);
    if (bytes <= most)
      throw UserError(
          "the plan takes {} bytes, more than --memory-limit {}; --recompute {} takes {}", planned,
          most, policy, bytes);
  }
  throw UserError(
      "the plan takes {} bytes, more than --memory-limit {}, and so does every --recompute; legal: "
      "a smaller --micro-batch, --seq-len or model",
      planned, most);
}

}  // namespace ladder
