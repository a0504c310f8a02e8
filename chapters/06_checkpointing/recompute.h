// --recompute: activations that are dropped after forward and computed again in backward.
//
// Numbers a token: a block keeps 16C + NH + 4, its output among them; an input is C more.
//
//   policy      kept of L blocks                                    computed again
//   none        L blocks, 1 input                                   nothing
//   every:K     K blocks, which segments share; ceil(L/K) inputs    K floor((L-1)/K) blocks
//   sqrt        every:ceil(sqrt L)                                  the same
//   full        every:1                                             L-1 blocks
//   selective   9C + 4 of each block, 7C + NH of one; 1 input       parts of L-1 blocks
//               :attention drops C + NH of them, :mlp 4C
//
// K = sqrt L makes L/K + K least (arXiv 1604.06174). Here a block keeps 16 times its input, so the
// least bytes come at a smaller K: see the README. The parts of `selective` are the cheap ones:
// the attention core (arXiv 2205.05198), and beside it both norms' and GELU's outputs.
// `selective:attention` takes the core alone, `selective:mlp` GELU's output alone.
//
// A segment is computed forward again from its kept input, just before backward needs it. Forward
// ends in the last segment, which therefore is still there and is not computed twice. The same
// kernels on the same inputs give the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/model/activations.h"
#include "common/model/parts.h"
#include "common/names.h"
#include "common/run/command_line.h"
#include "common/run/log.h"
#include "kernels/cost.h"
#include "kernels/tree.h"

namespace ladder {

struct RecomputeOptions {
  std::string policy = "none";
  uint64_t memory_limit = 0;  ///< bytes; 0: none

  void add_to(CommandLine& line) {
    line.group("06_checkpointing");
    line.add("--recompute", policy,
             "none, every:K, sqrt, full, selective, selective:attention or selective:mlp");
    line.add("--memory-limit", memory_limit,
             "refuse a plan of more bytes (512MB: 512 x 2^20); 0: none", {.bytes = true});
  }
};

/// Parts of a block that are dropped although the block is kept.
struct DroppedParts {
  bool norms = false;
  bool attention = false;  ///< the core: out of q, k, v
  bool act = false;        ///< what the activation function gave
};

/// What a policy drops.
enum class Dropped : uint8_t { Nothing, Parts, Attention, Activation, Blocks };
/// Named are the policies that keep all blocks. Every other policy drops some.
constexpr auto names_of(Dropped) {
  return std::array{"none", "selective", "selective:attention", "selective:mlp"};
}

/// Which blocks backward computes again, for a model of L blocks.
class Recompute {
 public:
  /// @param at_once whether backward follows forward at once, and finds the last segment there; if
  ///                other micro-batches come in between, nothing of it is left
  /// @throws UserError naming the legal policies
  Recompute(const std::string& policy, int64_t layers, bool at_once = true)
      : dropped_(named<Dropped>(policy).value_or(Dropped::Blocks)),
        L_(layers),
        segment_(dropped_ == Dropped::Blocks ? segment_of(policy, layers) : layers),
        at_once_(at_once) {}

  bool selective() const { return dropped_ != Dropped::Nothing && !drops_blocks(); }
  bool drops_blocks() const { return dropped_ == Dropped::Blocks; }

  /// Blocks whose activations exist at the same time.
  int64_t sets() const { return segment_; }

  /// `base` with what this policy drops.
  ActivationPlan plan(ActivationPlan base) const {
    base.sets = segment_;
    base.own_norm &= !parts().norms;
    base.own_att &= !parts().attention;
    base.own_act &= !parts().act;
    return base;
  }

  /// Blocks to compute again before backward of block l: the segment that ends there, or none.
  Range segment_before(int64_t l) const {
    const bool ends = (l + 1) % segment_ == 0 || l + 1 == L_;
    return drops_blocks() && ends && !still_there(l) ? Range{l - l % segment_, l + 1} : Range{};
  }
  /// What to compute again of block l alone.
  DroppedParts parts_before(int64_t l) const { return still_there(l) ? DroppedParts{} : parts(); }

  /// Blocks that are computed again.
  int64_t blocks_again() const {
    int64_t sum = 0;
    for (int64_t l = 0; l < L_; ++l) sum += segment_before(l).size();
    return sum;
  }

  /// Blocks whose attention is computed again: those, and what is dropped of blocks that are kept.
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

  /// The same blocks under another policy.
  Recompute under(const std::string& policy) const { return {policy, L_, at_once_}; }

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
    if (policy == "offload")
      throw UserError(
          "--recompute offload is now --recompute full --offload inputs, of chapter 18_offload");
    int64_t k = 0;
    const char* end = policy.data() + policy.size();
    const bool every = policy.starts_with("every:");
    const auto parsed = std::from_chars(policy.data() + (every ? 6 : 0), end, k);
    if (!every || parsed.ec != std::errc{} || parsed.ptr != end || k < 1 || k > L)
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

/// Those parts of a block again, from its input (B,T,C) and what was kept.
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

/// Those of the last step, 0 if there was none.
/// @param predicted what recomputation should take
inline void report_recompute(RunLog& log, const StepFlops& flops, int64_t predicted) {
  if (log.steps() == 0) predicted = 0;
  log.extra()["recompute"] = {
      {"flops", flops.all}, {"flops_twice", {{"predicted", predicted}, {"measured", flops.twice}}}};
}

}  // namespace ladder
