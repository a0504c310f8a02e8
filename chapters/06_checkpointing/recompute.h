// --recompute: drops activations after forward, and computes them again in backward.
//
// Numbers per token: a block keeps 16C + NH + 4, which include its output. An input is C more.
//
//   policy      kept of L blocks                                    computed again
//   none        L blocks, 1 input                                   nothing
//   every:K     K blocks, which segments share; ceil(L/K) inputs    K floor((L-1)/K) blocks
//   sqrt        every:ceil(sqrt L)                                  the same
//   full        every:1                                             L-1 blocks
//   selective   9C + 4 of each block, 7C + NH of one; 1 input       parts of L-1 blocks
//               :attention drops C + NH of them, :mlp 4C
//
// K = sqrt L makes L/K + K smallest (arXiv 1604.06174). Here a block keeps 16 times its input, so
// bytes are fewest at a smaller K: see the README. `selective` drops the parts that are cheap to
// compute: the attention core (arXiv 2205.05198), the outputs of both norms, and GELU's output.
// `selective:attention` drops only the core, `selective:mlp` only GELU's output.
//
// Just before backward needs a segment, its forward is computed again from its kept input. Forward
// ends in the last segment, so that segment is still there and is not computed twice. The same
// kernels with the same inputs give the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "common/model/activations.h"
#include "common/model/parts.h"
#include "common/names.h"
#include "common/number_in.h"
#include "common/run/command_line.h"
#include "common/run/log.h"
#include "kernels/cost.h"
#include "kernels/tree.h"

namespace ladder {

struct RecomputeOptions {
  std::string policy = "none";

  void add_to(CommandLine& line) {
    line.group("06_checkpointing");
    line.add("--recompute", policy,
             "none, every:K, sqrt, full, selective, selective:attention or selective:mlp");
  }
};

/// Parts of a block that are dropped while the rest of the block is kept.
struct DroppedParts {
  bool norms = false;
  bool attention = false;  ///< the core: what is computed from q, k, v
  bool act = false;        ///< the output of the activation function
};

/// What a policy drops.
enum class Dropped : uint8_t { Nothing, Parts, Attention, Activation, Blocks };
/// These names are of policies that keep all blocks. Every other policy drops blocks.
constexpr auto names_of(Dropped) {
  return std::array{"none", "selective", "selective:attention", "selective:mlp"};
}

/// Which blocks backward computes again, for a model of L blocks.
class Recompute {
 public:
  /// @param at_once true until chapter 12: backward follows forward at once, and finds the last
  ///                segment there; false: other micro-batches in between overwrite that segment
  /// @throws UserError naming the legal policies
  Recompute(const std::string& policy, int64_t layers, bool at_once = true)
      : dropped_(named<Dropped>(policy).value_or(Dropped::Blocks)),
        L_(layers),
        segment_(dropped_ == Dropped::Blocks ? segment_of(policy, layers) : layers),
        at_once_(at_once) {}

  bool drops_blocks() const { return dropped_ == Dropped::Blocks; }

  /// How many blocks have their activations at the same time.
  int64_t sets() const { return segment_; }

  /// `base`, changed to what this policy keeps: the own_... say which outputs of each block have
  /// memory of their own.
  ActivationPlan plan(ActivationPlan base) const {
    base.sets = segment_;
    base.own_norm &= !parts().norms;
    base.own_att &= !parts().attention;
    base.own_act &= !parts().act;
    return base;
  }

  /// Which blocks to compute again before backward of block l: the segment that ends at l, or none.
  Range segment_before(int64_t l) const {
    const bool ends = (l + 1) % segment_ == 0 || l + 1 == L_;
    return drops_blocks() && ends && !still_there(l) ? Range{l - l % segment_, l + 1} : Range{};
  }
  /// What to compute again of block l alone, before its backward.
  DroppedParts parts_before(int64_t l) const { return still_there(l) ? DroppedParts{} : parts(); }

  /// How many blocks are computed again.
  int64_t blocks_again() const {
    int64_t sum = 0;
    for (int64_t l = 0; l < L_; ++l) sum += segment_before(l).size();
    return sum;
  }

  /// How many blocks have their attention computed again: dropped blocks, and blocks that drop
  /// attention.
  int64_t attention_again() const {
    int64_t sum = blocks_again();
    for (int64_t l = 0; l < L_; ++l) sum += parts_before(l).attention ? 1 : 0;
    return sum;
  }

  /// Floating-point operations of products that are done twice, for `batch` sequences.
  int64_t extra_flops(const GptConfig& config, int64_t batch) const {
    const int64_t T = config.seq_len, tokens = batch * T;
    const int64_t core = cost::attention_forward(batch, T, config.heads, config.head_size()).flops;
    const int64_t linear = 2 * tokens * config.block_matrices();
    int64_t sum = 0;
    for (int64_t l = 0; l < L_; ++l)
      sum += segment_before(l).size() * (core + linear) + (parts_before(l).attention ? core : 0);
    return sum;
  }

  /// All policies, each under one name: every:1 is full, and every:L is none if backward follows at
  /// once.
  std::vector<std::string> all() const {
    std::vector<std::string> names{"none", "selective", "selective:attention", "selective:mlp",
                                   "full"};
    for (int64_t k = 2; k < L_ || (!at_once_ && k == L_); ++k)
      names.push_back(fmt::format("every:{}", k));
    return names;
  }

 private:
  static int64_t segment_of(const std::string& policy, int64_t L) {
    if (policy == "full") return 1;
    if (policy == "sqrt") return static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(L))));
    const auto [every, number] = around_colon(policy);
    const int64_t k = every == "every" ? number_in<int64_t>(number).value_or(0) : 0;
    if (k < 1 || k > L)
      throw UserError(
          "--recompute {}; legal are none, every:1 to every:{}, sqrt, full, selective, "
          "selective:attention and selective:mlp",
          policy, L);
    return k;
  }

  DroppedParts parts() const {
    const bool all = dropped_ == Dropped::Parts;
    return {.norms = all,
            .attention = all || dropped_ == Dropped::Attention,
            .act = all || dropped_ == Dropped::Activation};
  }

  /// Forward ends in the last block.
  bool still_there(int64_t l) const { return l + 1 == L_ && at_once_; }

  Dropped dropped_;
  int64_t L_;
  int64_t segment_;
  bool at_once_;
};

/// Computes these parts of a block again, from the block's input (B,T,C) and from what was kept.
inline void recompute_parts(const Ctx& ctx, const DroppedParts& parts, const BlockActs& s,
                            Tensor inp, const BlockTensors& p) {
  if (parts.norms) norm_forward(ctx, s.norm1, s.stat1, inp, p.norm1);
  if (parts.attention) attn_recompute(ctx, s.attn);
  if (parts.norms) norm_forward(ctx, s.norm2, s.stat2, s.mid, p.norm2);
  if (parts.act) mlp_recompute(ctx, s.mlp);
}

/// Floating-point operations of a step's products.
struct StepFlops {
  int64_t all = 0;    ///< counted through Ctx::flops
  int64_t twice = 0;  ///< those of recomputation among them

  /// While it lives, what is counted is recomputation.
  class Recomputing {
   public:
    explicit Recomputing(StepFlops& flops) : flops_(flops), before_(flops.all) {}
    Recomputing(const Recomputing&) = delete;
    Recomputing& operator=(const Recomputing&) = delete;
    ~Recomputing() { flops_.twice += flops_.all - before_; }

   private:
    StepFlops& flops_;
    int64_t before_;
  };
};

/// Reports the operations of the last step's products, and those of recomputation among them: 0 if
/// there was no step.
/// @param predicted what recomputation should take
inline void report_recompute(Log& log, const StepFlops& flops, int64_t predicted) {
  if (log.steps() == 0) predicted = 0;
  log.extra()["recompute"] = {
      {"flops", flops.all}, {"flops_twice", {{"predicted", predicted}, {"measured", flops.twice}}}};
}

/// --plan-only: the plan, and a row for each policy, the one that repeats least first. A policy
/// that saves nothing over the rows above it has none.
/// @param base what is kept under no policy
inline void show_policies(const RunOptions& run, const RunPlan& plan, const Recompute& recompute,
                          const ActivationPlan& base) {
  show_plan(run, plan);
  if (run.quiet) return;
  const auto kept = [&](const Recompute& policy) {
    const ActivationPlan acts = policy.plan(base);
    const int64_t MBS = plan.layout.micro_batch;
    return activation_bytes(plan.gpt, MBS, acts) + act_grad_bytes(plan.gpt, MBS, acts);
  };
  const int64_t others = plan.predicted.total() - kept(recompute);
  std::vector<std::tuple<int64_t, int64_t, std::string>> rows;  // FLOPs, bytes, name
  for (const std::string& name : recompute.all()) {
    const Recompute policy(name, plan.gpt.layers);
    rows.emplace_back(policy.extra_flops(plan.gpt, plan.layout.batch), others + kept(policy), name);
  }
  std::ranges::stable_sort(rows, {}, [](const auto& row) { return std::get<0>(row); });
  fmt::print("{:<20} {:>17} {:>24}\n", "--recompute", "bytes of the plan", "FLOPs a step repeats");
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& [flops, bytes, name] : rows) {
    if (bytes < least) fmt::print("{:<20} {:>17} {:>24}\n", name, bytes, flops);
    least = std::min(least, bytes);
  }
}

}  // namespace ladder
