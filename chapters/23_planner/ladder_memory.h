// Memory of a run of a chapter here, to the byte: the formulas that its own predict() calls.
//
// Each layout is one chapter's, or no chapter's, and then has a dash (ladder_chapter):
//
//   06          one rank                        20   cp, and dp, with ZeRO's stage 2
//   07 to 10    dp, by stage of ZeRO            21   experts on one rank
//   11, 12      tp alone, pp alone              22   experts on several, with ZeRO's stage 2
//   13          tp and pp; or either of them    30   replicas of ZeRO's stage 3
//               or both with dp, and stage 1    33   cp beside tp or pp, with stage 2, which the
//   16          FP8: dp, without ZeRO                layout calls stage 1 where there are stages
#pragma once

#include <cstdint>
#include <string>

#include "chapters/01_sgd/sgd.h"
#include "chapters/02_adamw/optimizer.h"
#include "chapters/04_clipping/accumulate.h"
#include "chapters/05_mixed_precision/precision.h"
#include "chapters/07_ddp/ddp.h"
#include "chapters/09_zero2/zero2.h"
#include "chapters/10_zero3/zero3.h"
#include "chapters/11_tensor_parallel/tensor_parallel.h"
#include "chapters/12_pipeline_parallel/stage.h"
#include "chapters/12_pipeline_parallel/stage_grads.h"
#include "chapters/16_fp8/fp8.h"
#include "chapters/20_context_parallel/context.h"
#include "chapters/20_context_parallel/context_parallel.h"
#include "chapters/21_moe/balance.h"
#include "chapters/21_moe/experts.h"
#include "chapters/22_expert_parallel/exchange.h"
#include "chapters/22_expert_parallel/exchange_memory.h"
#include "chapters/22_expert_parallel/expert_parallel.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/legal.h"
#include "chapters/33_mesh/mesh_groups.h"
#include "common/run/backend.h"
#include "common/run/options.h"
#include "kernels/limbs.h"

namespace ladder::planner {

/// The chapter that runs a layout; "": none does.
inline std::string ladder_chapter(const Job& job, const PlanLayout& l) {
  const bool shares_batch_alone = l.tp * l.pp * l.cp * l.ep == 1;
  if (l.cp > 1) {
    if (job.precision.fp8() || job.gpt.has_experts()) return "";
    if (l.tp * l.pp == 1) return l.zero == 2 ? "20_context_parallel" : "";
    return l.zero == (l.pp > 1 ? 1 : 2) ? "33_mesh" : "";
  }
  if (job.gpt.has_experts()) {
    if (l.tp * l.pp > 1 || job.precision.fp8()) return "";
    return l.dp == 1 ? "21_moe" : l.zero == 2 ? "22_expert_parallel" : "";
  }
  if (job.precision.fp8()) return shares_batch_alone && l.zero == 0 ? "16_fp8" : "";
  if (!shares_batch_alone) {
    if (l.zero == 1) return "13_3d_parallel";
    if (l.zero != 0 || l.dp > 1) return "";
    return l.pp == 1 ? "11_tensor_parallel" : l.tp == 1 ? "12_pipeline_parallel" : "13_3d_parallel";
  }
  if (l.zero == 0) return l.dp == 1 ? "06_checkpointing" : "07_ddp";
  if (l.replicas > 1) return "30_hsdp";
  constexpr std::array kZero{"08_zero1", "09_zero2", "10_zero3"};
  return kZero.at(static_cast<size_t>(l.zero) - 1);
}

/// The formulas of one layout, with the options that its chapter has by default: AdamW, a tree of
/// gradients, reduction by halving.
class LadderMemory {
 public:
  LadderMemory(const Job& job, const PlanLayout& layout)
      : job_(job),
        l_(layout),
        share_(ddp_.share(job.batch, layout.dp)),
        micro_(AccumulateOptions{.micro_batch = layout.micro_batch}.micro(share_)),
        GA_(share_ / micro_) {
    run_.threads = job.threads;
  }

  /// Of a rank of that stage. @throws UserError as the chapter would
  MemoryBytes of(int64_t stage) const {
    if (l_.cp > 1) return l_.tp * l_.pp > 1 ? of_full_mesh(stage) : of_context();
    if (job_.gpt.has_experts() && l_.dp > 1) return of_experts();
    if (l_.tp * l_.pp == 1) return of_shares();
    return ladder_chapter(job_, l_) == "11_tensor_parallel" ? of_tensor() : of_mesh(stage);
  }

 private:
  /// What every chapter has: weights, states, scratch, the digits of the norm, tokens, targets and
  /// losses.
  /// @param weights that the rank keeps; @param states those that it updates
  /// @param tokens of a sequence on this rank
  MemoryBytes common(const ParamLayout& weights, const ParamLayout& states, int64_t tokens) const {
    MemoryBytes bytes;
    bytes[Mem::Param] = Weights::param_bytes(weights.size(), job_.precision);
    bytes[Mem::Master] = Weights::master_bytes(states.size(), job_.precision);
    bytes[Mem::Optim] = Optimizer::bytes(states, {}, {});
    bytes[Mem::Activation] = 8 * share_ * tokens + 4 * job_.batch;
    bytes[Mem::Workspace] = 8 * kLimbs + scratch_bytes(run_);
    return bytes;
  }

  /// What routers and experts take; without experts nothing.
  void add_experts(MemoryBytes& bytes, const ExpertSizes& own, const ActivationPlan& acts) const {
    const GptConfig& gpt = job_.gpt;
    bytes[Mem::Optim] += Balance::bytes(gpt);
    bytes[Mem::Activation] += Routers::activation_bytes(gpt, job_.batch, micro_, acts) +
                              ExpertLayers::activation_bytes(own, acts);
    bytes[Mem::Workspace] +=
        Routers::workspace_bytes(gpt, micro_, acts) + ExpertLayers::workspace_bytes(own, acts);
  }

  /// Chapters 06 to 10, 16 and 21.
  MemoryBytes of_shares() const {
    const GptConfig& gpt = job_.gpt;
    const ParamLayout params(gpt, l_.zero == 0 ? 1 : l_.shards()), shard = params.shard(0);
    const Recompute recompute(l_.recompute, gpt.layers);
    const ActivationPlan acts = recompute.plan(job_.precision.plan());
    const int ranks = static_cast<int>(l_.shards());
    MemoryBytes bytes =
        common(l_.zero >= 3 ? shard : params, l_.zero >= 1 ? shard : params, gpt.seq_len);
    bytes[Mem::Activation] += activation_bytes(gpt, micro_, acts);
    bytes[Mem::Workspace] += act_grad_bytes(gpt, micro_, acts);
    add_experts(bytes, ExpertSizes(gpt, micro_), acts);
    if (l_.zero >= 2)
      ShardedGrads::add_bytes(bytes, params, shard, accumulate_, GA_, ddp_.overlaps(ranks));
    else
      GradTree::add_bytes(bytes, params, accumulate_, GA_);
    if (l_.zero >= 3)
      bytes[Mem::Workspace] +=
          size_of(job_.precision.dtype()) * Zero3Options{}.buffer_elements(params);
    const int64_t message =
        l_.zero == 0 ? Ddp::largest_message(params, ddp_) : params.largest_section();
    bytes[Mem::Comm] = CommStream::bytes(ranks, message) +
                       CommStream::bytes(static_cast<int>(l_.replicas), shard.grads().size());
    Fp8::add_bytes(bytes, gpt, micro_, recompute.sets(), job_.precision.fp8());
    return bytes;
  }

  /// Chapter 22.
  MemoryBytes of_experts() const {
    const GptConfig& gpt = job_.gpt;
    const int ranks = static_cast<int>(l_.dp);
    const ExpertParallelOptions options{.ep = static_cast<int>(l_.ep)};
    const ParamLayout params(gpt, ranks, {}, {}, options.place(gpt, ranks, 0)),
        shard = params.shard(0);
    const ActivationPlan acts = Recompute(l_.recompute, gpt.layers).plan(job_.precision.plan());
    MemoryBytes bytes = common(params, shard, gpt.seq_len);
    bytes[Mem::Activation] += activation_bytes(gpt, micro_, acts);
    bytes[Mem::Workspace] += act_grad_bytes(gpt, micro_, acts);
    ShardedGrads::add_bytes(bytes, params, shard, accumulate_, GA_, ddp_.overlaps(ranks));
    bytes[Mem::Comm] = ExpertStreams::bytes(params, ranks, options.ep);
    const int64_t any = 0;  // tokens that an expert takes
    const ExchangeShape exchange(gpt, micro_, l_.ep, any, acts.dtype);
    add_experts(bytes, exchange.own, acts);
    Exchange::add_bytes(bytes, exchange, acts);
    return bytes;
  }

  /// Chapter 20.
  MemoryBytes of_context() const {
    ContextOptions options{.way = job_.context};
    options.cp = static_cast<int>(l_.cp);
    const int ranks = static_cast<int>(l_.batch_ranks());
    const LocalTokens own = options.local_tokens(job_.gpt, options.mesh(job_.gpt, ranks), 0);
    const int64_t micro = options.micro(micro_);
    const GptConfig gpt = local_part(job_.gpt, l_.cp);
    const ParamLayout params(gpt, ranks), shard = params.shard(0);
    const ActivationPlan acts = Recompute(l_.recompute, gpt.layers).plan(job_.precision.plan());
    MemoryBytes bytes = common(params, shard, own.size());
    bytes[Mem::Activation] += activation_bytes(gpt, micro, acts);
    bytes[Mem::Workspace] += act_grad_bytes(gpt, micro, acts);
    ShardedGrads::add_bytes(bytes, params, shard, accumulate_, GA_, ddp_.overlaps(ranks));
    bytes[Mem::Comm] = CommStream::bytes(ranks, params.largest_section());
    ContextParallel::add_bytes(bytes, options.way, ContextShape(own, job_.gpt, acts.dtype), micro);
    return bytes;
  }

  /// Chapter 11.
  MemoryBytes of_tensor() const {
    const GptConfig& gpt = job_.gpt;
    const ParamLayout params(gpt, 1, {0, l_.tp});
    const ActivationPlan acts =
        tensor().plan(Recompute(l_.recompute, gpt.layers).plan(job_.precision.plan()), gpt, l_.tp);
    MemoryBytes bytes = common(params, params, gpt.seq_len);
    bytes[Mem::Activation] += activation_bytes(gpt, micro_, acts);
    bytes[Mem::Workspace] += act_grad_bytes(gpt, micro_, acts);
    GradTree::add_bytes(bytes, params, accumulate_, GA_);
    TensorParallel::add_bytes(bytes, gpt, acts, micro_);
    return bytes;
  }

  TensorParallelOptions tensor() const {
    return {.tp = static_cast<int>(l_.tp), .sequence_parallel = job_.sequence_parallel};
  }

  PipelineOptions pipeline() const {
    PipelineOptions options;
    options.pp = static_cast<int>(l_.pp);
    options.kind = l_.schedule;
    if (l_.chunks > 1) options.chunks = static_cast<int>(l_.chunks);
    return options;
  }

  /// Chapter 33.
  MemoryBytes of_full_mesh(int64_t s) const {
    const PipelineOptions options = pipeline();
    ContextOptions context{.way = job_.context};
    context.cp = static_cast<int>(l_.cp);
    context.degree(job_.gpt, l_.tp);
    check_tokens(tensor(), job_.gpt, l_.tp, l_.cp);
    const LocalTokens own = context.local_tokens(job_.gpt,
                                                 {{Axis::Tensor, static_cast<int>(l_.tp)},
                                                  {Axis::Context, context.cp},
                                                  {Axis::Data, static_cast<int>(l_.dp)},
                                                  {Axis::Pipeline, options.pp}},
                                                 0);
    const int64_t micro = context.micro(micro_);
    const GptConfig gpt = local_part(job_.gpt, l_.cp);
    const StageLayout stage(options, gpt, s, options.pipeline(job_.gpt, l_.pp, GA_));
    const ParamLayout params(job_.gpt, l_.cp * l_.dp, {0, l_.tp}, stage.position),
        shard = params.shard(0);
    const Recompute recompute(l_.recompute, stage.model_chunk.layers, /*at_once=*/false);
    const ActivationPlan acts =
        tensor().plan(stage.plan(job_.precision.plan(), recompute), gpt, l_.tp);
    const int ranks = static_cast<int>(l_.cp * l_.dp);
    MemoryBytes bytes = common(params, shard, own.size());
    bytes[Mem::Activation] += 4 * share_;
    bytes[Mem::Comm] = CommStream::bytes(ranks, params.largest_section());
    ShardedGrads::add_bytes(bytes, params, shard, accumulate_, GA_, ddp_.overlaps(ranks));
    ContextParallel::add_bytes(bytes, context.way, ContextShape(own, job_.gpt, acts.dtype, l_.tp),
                               micro);
    TensorParallel::add_bytes(bytes, gpt, acts, micro, kTokenChunks / l_.cp);
    Stage::add_bytes(bytes, stage, acts, micro);
    return bytes;
  }

  /// Chapter 13, and 12 without tensor ranks.
  MemoryBytes of_mesh(int64_t s) const {
    const PipelineOptions options = pipeline();
    const StageLayout stage(options, job_.gpt, s, options.pipeline(job_.gpt, l_.pp, GA_));
    const ParamLayout params(job_.gpt, l_.dp, {0, l_.tp}, stage.position), shard = params.shard(0);
    const Recompute recompute(l_.recompute, stage.model_chunk.layers, /*at_once=*/false);
    const ActivationPlan acts =
        tensor().plan(stage.plan(job_.precision.plan(), recompute), job_.gpt, l_.tp);
    MemoryBytes bytes = common(params, shard, job_.gpt.seq_len);
    bytes[Mem::Comm] = CommStream::bytes(static_cast<int>(l_.dp), params.largest_section());
    if (ladder_chapter(job_, l_) == "13_3d_parallel")
      TensorParallel::add_bytes(bytes, job_.gpt, acts, micro_);
    GradTree::add_bytes(bytes, params, accumulate_, GA_);
    Stage::add_bytes(bytes, stage, acts, micro_);
    return bytes;
  }

  const Job& job_;
  const PlanLayout& l_;
  DdpOptions ddp_;
  AccumulateOptions accumulate_;
  RunOptions run_;
  int64_t share_, micro_, GA_;
};

/// What a run here counts on the rank that takes most.
struct LadderBytes {
  std::string chapter;  ///< that runs it; "": none, for the reason `why`
  std::string why;
  MemoryBytes bytes;
};

inline LadderBytes ladder_bytes(const Job& job, const PlanLayout& l) {
  LadderBytes found{ladder_chapter(job, l), "no chapter runs such a layout", {}};
  if (found.chapter.empty()) return found;
  found.why = refusal_of([&] {
    const LadderMemory memory(job, l);
    for (const int64_t stage : stages_at_the_ends(l.pp))
      if (const MemoryBytes bytes = memory.of(stage); bytes.total() > found.bytes.total())
        found.bytes = bytes;
  });
  if (!found.why.empty()) found.chapter.clear();
  return found;
}

}  // namespace ladder::planner
