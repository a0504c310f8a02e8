// --memory-limit: refuses a plan over the limit, before a tensor is allocated or the text is read.
// The message names the cheapest policy that fits. If none fits, it names what takes most of the
// memory, and what makes that smaller.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "chapters/06_checkpointing/recompute.h"
#include "common/error.h"
#include "common/run/log.h"

namespace ladder {

/// The plan under one policy. Plans are ordered by cost: first the one that computes fewer FLOPs
/// twice, then the one with fewer bytes.
struct PolicyPlan {
  int64_t flops;
  int64_t bytes;
  std::string name;
  Mem largest;  ///< the category that takes most bytes

  auto operator<=>(const PolicyPlan&) const = default;
};

/// The plans of all policies, the cheapest first.
/// @param recompute the policy that was asked for
/// @param plan_of   the bytes of the plan under another policy: MemoryBytes(const std::string&)
template <class PlanOf>
std::vector<PolicyPlan> all_plans(const GptConfig& gpt, const Recompute& recompute,
                                  PlanOf&& plan_of) {
  std::vector<PolicyPlan> all;
  for (const std::string& name : recompute.all()) {
    const Recompute policy = recompute.under(name);
    const MemoryBytes plan = plan_of(name);
    const auto most = std::ranges::max_element(plan.bytes) - plan.bytes.begin();
    all.push_back({.flops = policy.extra_flops(gpt, 1),
                   .bytes = plan.total(),
                   .name = name,
                   .largest = static_cast<Mem>(most)});
  }
  std::ranges::sort(all);
  return all;
}

/// A flag that only some chapters have, such as "a larger --cp", and the category that it makes
/// smaller.
struct AlsoShrinks {
  Mem mem = Mem::Activation;
  std::string flag;  ///< empty: there is none
};

/// Flags that make a category smaller if no policy does. A smaller micro-batch alone may do the
/// opposite: more micro-batches may take one more gradient buffer in the tree of chapter 04.
/// @param narrow whether activations have 16 bits or fewer already
inline std::string what_shrinks(Mem mem, bool narrow, const AlsoShrinks& also) {
  if (mem == also.mem && !also.flag.empty())
    return fmt::format("{}, {}", also.flag, what_shrinks(mem, narrow, {}));
  switch (mem) {
    case Mem::Activation:
      return fmt::format(
          "{}a smaller --seq-len, or a smaller --micro-batch with --accumulate running",
          narrow ? "" : "--precision bf16, ");
    case Mem::Workspace:
      return "fewer --threads, a smaller --seq-len, or a smaller --micro-batch with --accumulate "
             "running";
    case Mem::Optim: return "--optimizer lion or sgd, or fewer --layers or --channels";
    default: return "fewer --layers or --channels";
  }
}

/// @param plan_of as for all_plans()
/// @param shown   whether to print the plan: on rank 0, unless --quiet
/// @param also    a flag of this chapter that makes a category smaller
/// @throws UserError after printing the plan, if it is over `limit` (bytes; 0: no limit)
template <class PlanOf>
void check_memory_limit(const RunPlan& plan, const Recompute& recompute, uint64_t limit, bool shown,
                        PlanOf&& plan_of, const AlsoShrinks& also = {}) {
  const int64_t planned = plan.predicted.total(), most = static_cast<int64_t>(limit);
  if (most == 0 || planned <= most) return;
  if (shown) fmt::print("{}\n", plan_text(plan));
  const std::vector<PolicyPlan> all = all_plans(plan.gpt, recompute, plan_of);
  const auto fits = std::ranges::find_if(all, [&](const auto& p) { return p.bytes <= most; });
  if (fits != all.end())
    throw UserError("the plan takes {} bytes, more than --memory-limit {}; --recompute {} takes {}",
                    planned, most, fits->name, fits->bytes);
  const PolicyPlan& least = *std::ranges::min_element(all, {}, &PolicyPlan::bytes);
  throw UserError(
      "the plan takes {} bytes, more than --memory-limit {}, and so does every --recompute; {} "
      "takes the least, {}, most of it {}, which shrinks with {}",
      planned, most, least.name, least.bytes, kMemNames[static_cast<size_t>(least.largest)],
      what_shrinks(least.largest, plan.predicted[Mem::Master] > 0, also));
}

}  // namespace ladder
