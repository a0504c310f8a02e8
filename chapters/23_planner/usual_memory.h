// Memory as most programs take it: bytes a parameter, and the activations of one micro-batch.
//
//              fp32    16 bits with gradients in   fp32   16 bits   both
//   weights      4                                   2       2        2
//   master       -                                   4       4        4
//   gradients    4                                   4       2        6
//   Adam         8                                   8       8        8
//   a parameter 16                                  18      16       20
//
// 16 is ZeRO's table (arXiv 1910.02054), 18 Megatron's, 20 that of programs which keep both
// gradients. Stages of ZeRO divide rows by the ranks that split the batch: 1 the states and the
// master, 2 also the gradients, 3 also the weights.
//
// Ladder counts another sum (ladder_memory.h). Two things make the difference. It adds
// micro-batches up as a tree, in floor(log2(GA + 1)) buffers of FP32 gradients, so that any layout
// has the same bits; here one running buffer does. And its sequence parallelism has three buffers
// for what travels; here two do.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

#include "chapters/07_ddp/ddp.h"
#include "chapters/09_zero2/zero2.h"
#include "chapters/10_zero3/zero3.h"
#include "chapters/12_pipeline_parallel/part_grads.h"
#include "chapters/16_fp8/fp8.h"
#include "chapters/21_moe/experts.h"
#include "chapters/23_planner/job.h"
#include "common/model/activations.h"
#include "common/model/layout.h"
#include "kernels/arena.h"

namespace ladder::planner {

/// A stage of one layout: elements of its flat buffer, and what one rank sends to those that split
/// the batch with it, by the formulas of chapters 08 to 10.
struct StageSizes {
  int64_t all, own;  ///< elements on a rank of the stage, and in one shard
  int64_t largest;   ///< section
  int64_t sections;  ///< that are not empty
  int64_t reduce;    ///< bytes of a reduce-scatter of all gradients, FP32
  int64_t gather;    ///< bytes of an all-gather of all weights
  // For one micro-batch, what stage 3 of ZeRO gathers a second time; else 0.
  int64_t gather_again;    ///< bytes
  int64_t sections_again;  ///< each an all-gather of its own
};

/// StageSizes by layout: the search asks for few of them very often.
class SizeTable {
 public:
  const StageSizes& of(const Job& job, const PlanLayout& l, int64_t stage) {
    // Which sections stage 3 gathers again depends on the segments that are computed again.
    const int64_t segment = l.zero >= 3 ? recompute_of(job, l).sets() : 0;
    const Key key{l.tp, l.pp, l.chunks, kind(l, stage), l.shards(), l.ep, segment};
    const auto found = sizes_.find(key);
    return found != sizes_.end() ? found->second : sizes_[key] = make(job, l, stage);
  }

 private:
  StageSizes make(const Job& job, const PlanLayout& l, int64_t stage) {
    PlanLayout less = l;
    if (l.ep > 1) {
      less.ep = 1;
      return share_experts(of(job, less, stage), job, l);
    }
    const ParamLayout& params = params_of(job, l, stage);
    const DdpOptions ddp{.reduction = Reduction::Ring};  // of as many bytes as halving, for any N
    if (l.zero >= 3) {
      less.zero = 0;
      StageSizes sizes = of(job, less, stage);
      if (l.pp > 1) return sizes;
      const Recompute recompute = recompute_of(job, l);
      const auto traffic = zero3_traffic(params, ddp, job.precision, recompute, {}, 1).value();
      sizes.gather_again = traffic - sizes.reduce - sizes.gather;
      sizes.sections_again = gathers(params, recompute) - sizes.sections;
      return sizes;
    }
    const auto traffic = [&](int64_t GA) {
      return zero2_traffic(params, ddp, job.precision, GA).value();
    };
    // Chapter 09 sends GA reduce-scatters and one all-gather a step: one more micro-batch is one
    // more reduce-scatter.
    StageSizes sizes{.all = params.size(),
                     .own = params.shard(0).size(),
                     .largest = params.largest_section(),
                     .sections = std::ssize(params.sections_of(Tensor{.shape = {params.size()}})),
                     .reduce = traffic(2) - traffic(1),
                     .gather = 0,
                     .gather_again = 0,
                     .sections_again = 0};
    sizes.gather = traffic(1) - sizes.reduce;
    return sizes;
  }
  /// How many gathers a micro-batch makes: one whenever a section that is used is in no buffer
  /// (chapter 10).
  static int64_t gathers(const ParamLayout& params, const Recompute& recompute) {
    SectionCache cache(Zero3Options{}.buffers(params));
    int64_t count = 0;
    for (const int64_t s : sections_used(params.sections() - 2, recompute))
      count += cache.find_or_evict(params.home_of(s)).there ? 0 : 1;
    return count;
  }
  const ParamLayout& params_of(const Job& job, const PlanLayout& l, int64_t stage) {
    const std::array key{l.tp, l.pp, l.chunks, kind(l, stage), l.shards()};
    auto found = params_.find(key);
    if (found == params_.end())
      found =
          params_.emplace(key, ParamLayout(job.gpt, l.shards(), {0, l.tp}, {stage, l.pp, l.chunks}))
              .first;
    return found->second;
  }

  /// A rank has an ep-th of the experts, and sums their gradients with the others that have them.
  static StageSizes share_experts(StageSizes sizes, const Job& job, const PlanLayout& l) {
    const int64_t experts =
        job.gpt.layers / l.pp * job.gpt.experts.count * job.gpt.expert_matrices();
    const auto whole = static_cast<double>(sizes.all);
    sizes.all -= experts - experts / l.ep;
    sizes.largest -= (experts - experts / l.ep) / (job.gpt.layers / l.pp);
    const double left = static_cast<double>(sizes.all) / whole;
    for (int64_t* bytes : {&sizes.reduce, &sizes.gather, &sizes.gather_again})
      *bytes = static_cast<int64_t>(static_cast<double>(*bytes) * left);
    return sizes;
  }

  using Key = std::array<int64_t, 7>;
  /// Stages differ in having the embedding, the head, both or none.
  static int64_t kind(const PlanLayout& l, int64_t stage) {
    return (stage == 0 ? 1 : 0) + (l.is_last(stage) ? 2 : 0);
  }

  std::map<Key, StageSizes> sizes_;
  std::map<std::array<int64_t, 5>, ParamLayout> params_;
};

/// Buffers of what ranks send to one another while they compute: 16 or 32 bits a number.
inline int64_t buffer_bytes(const Job& job, const PlanLayout& l, const ActivationPlan& acts) {
  const GptConfig part = part_of(job, l);
  const int64_t tokens = l.micro_batch * part.seq_len, C = part.channels;
  int64_t numbers = 0;
  // Sequence parallelism: what a part reads of all tokens, and the gradient of what it makes.
  if (acts.sequence_ranks > 1) numbers += 2 * tokens * C;
  // Context parallelism: keys and values of one rank in use, those of the next on their way.
  if (l.cp > 1) numbers += 2 * 2 * tokens * part.groups() * part.head_size() / l.tp;
  // A pipeline: an activation and a gradient arrive.
  if (l.pp > 1) numbers += 2 * tokens / acts.sequence_ranks * C;
  return numbers * size_of(acts.dtype);
}

/// Of a rank of a stage, by category: what ZeRO shares, with its buffers for whole sections. No
/// policy of recomputation changes it.
inline MemoryBytes state_bytes(const Job& job, const PlanLayout& l, const StageSizes& n) {
  const int64_t weight = size_of(job.precision.dtype()), gradient = job.gradient_bytes();
  MemoryBytes bytes;
  bytes[Mem::Param] = weight * (l.zero >= 3 ? n.own : n.all);
  bytes[Mem::Master] = (job.precision.narrow() ? 4 : 0) * (l.zero >= 1 ? n.own : n.all);
  bytes[Mem::Grad] = gradient * (l.zero >= 2 ? n.own : n.all);
  bytes[Mem::Optim] = 8 * (l.zero >= 1 ? n.own : n.all);
  // Two buffers for whole sections: one in use, one on its way.
  if (l.zero >= 2) bytes[Mem::Workspace] += 2 * job.sent_gradient_bytes() * n.largest;
  if (l.zero >= 3) bytes[Mem::Workspace] += 2 * weight * n.largest;
  return bytes;
}

/// And what micro-batches take. No stage of ZeRO changes it.
inline MemoryBytes work_bytes(const Job& job, const PlanLayout& l, int64_t stage) {
  const GptConfig part = part_of(job, l);
  const ActivationPlan acts = activations_of(job, l, stage);
  MemoryBytes bytes;
  bytes[Mem::Activation] = activation_bytes(part, l.micro_batch, acts);
  // W of zb-h1 comes s backwards late on stage s, and what it reads waits with it.
  const bool waits = l.pp > 1 && l.schedule == PipelineKind::ZbH1;
  const int64_t waiting = std::min(stage + 1, l.micros(job));
  bytes[Mem::Workspace] = waits ? chunk_grad_bytes(part, l.micro_batch, acts, waiting)
                                : act_grad_bytes(part, l.micro_batch, acts);
  // Chapter 21, as if tokens were spread evenly: then a rank has as many rows with any ep.
  const int64_t mbs = l.micro_batch;
  const ExpertSizes experts(part, mbs);
  bytes[Mem::Activation] +=
      (acts.own_sets ? acts.slots : 1) * (Routers::activation_bytes(part, mbs, mbs, acts) +
                                          ExpertLayers::activation_bytes(experts, acts));
  bytes[Mem::Workspace] +=
      Routers::workspace_bytes(part, mbs, acts) + ExpertLayers::workspace_bytes(experts, acts);
  bytes[Mem::Comm] = buffer_bytes(job, l, acts);
  if (job.precision.fp8()) {
    MemoryBytes codes;  // chapter 16 has no tensor ranks: they share codes as they share products
    Fp8::add_bytes(codes, part, l.micro_batch, acts.set_count(part.layers) * acts.slots, true);
    for (size_t i = 0; i < codes.bytes.size(); ++i) bytes.bytes[i] += codes.bytes[i] / l.tp;
  }
  return bytes;
}

inline MemoryBytes usual_bytes(const Job& job, const PlanLayout& l, int64_t stage,
                               SizeTable& sizes) {
  MemoryBytes bytes = work_bytes(job, l, stage);
  const MemoryBytes states = state_bytes(job, l, sizes.of(job, l, stage));
  for (size_t i = 0; i < bytes.bytes.size(); ++i) bytes.bytes[i] += states.bytes[i];
  return bytes;
}

/// The stage that takes most, and its bytes.
struct StageBytes {
  int64_t stage;
  MemoryBytes bytes;
};

inline StageBytes most_bytes(const Job& job, const PlanLayout& l, SizeTable& sizes) {
  StageBytes most{};
  for (const int64_t stage : stages_at_the_ends(l.pp))
    if (const MemoryBytes bytes = usual_bytes(job, l, stage, sizes);
        bytes.total() > most.bytes.total())
      most = {stage, bytes};
  return most;
}

}  // namespace ladder::planner
