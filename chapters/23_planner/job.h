// What is to be trained, on how many devices, and how devices may share it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/12_pipeline_parallel/proof/pipeline_check.h"
#include "chapters/16_fp8/fp8.h"
#include "chapters/20_context_parallel/context.h"
#include "common/model/activations.h"
#include "common/model/config.h"

namespace ladder::planner {

/// Which gradients of parameters the usual accounting has for 16-bit weights: of 4 bytes (18 bytes
/// per parameter in all), of 2 bytes (16), or both (20).
enum class Gradients : uint8_t { Fp32, Narrow, Both };
constexpr auto names_of(Gradients) { return std::array{"fp32", "16-bit", "both"}; }

struct Job {
  GptConfig gpt;
  int64_t gpus;
  int64_t batch;  ///< sequences of a step
  Fp8Options precision;
  Gradients gradients = Gradients::Fp32;
  bool sequence_parallel = true;            ///< if tensor ranks split layers
  ContextWay context = ContextWay::Gather;  ///< the way of chapter 20, for Ladder's bytes
  int threads = 1;                          ///< per rank, for Ladder's bytes

  int64_t gradient_bytes() const {
    if (!precision.narrow()) return 4;
    return gradients == Gradients::Fp32 ? 4 : gradients == Gradients::Narrow ? 2 : 6;
  }
  /// Bytes of a gradient on the wire.
  int64_t sent_gradient_bytes() const {
    return precision.narrow() && gradients != Gradients::Fp32 ? 2 : 4;
  }
  int64_t tokens() const { return batch * gpt.seq_len; }  ///< of a step
};

/// How devices share a job. The report's `layouts` has one per row.
struct PlanLayout {
  int64_t tp = 1, pp = 1, dp = 1, cp = 1, ep = 1;
  int zero = 0;
  int64_t replicas = 1;  ///< chapter 30: groups with all shards of stage 3 each
  std::string recompute = "none";
  int64_t micro_batch = 1;
  PipelineKind schedule = PipelineKind::OneFOneB;
  int64_t chunks = 1;  ///< per stage, for interleaved
  bool operator==(const PlanLayout&) const = default;

  int64_t gpus() const { return tp * pp * dp * cp; }  ///< ep shares what dp and cp have
  /// Ranks that split the batch: those that split a sequence have the same weights, too.
  int64_t batch_ranks() const { return dp * cp; }
  /// Ranks among which a stage of ZeRO cuts what it shares.
  int64_t shards() const { return batch_ranks() / replicas; }
  int64_t micros(const Job& job) const { return job.batch / dp / micro_batch; }  ///< of a step
  bool is_last(int64_t stage) const { return stage + 1 == pp; }

  std::string text() const {
    std::string schedule_text(to_string(schedule));
    if (chunks > 1) schedule_text += fmt::format(" x{}", chunks);
    return fmt::format("tp {} pp {} dp {} cp {}{} zero {}{} recompute {} micro-batch {}{}", tp, pp,
                       dp, cp, ep > 1 ? fmt::format(" ep {}", ep) : "", zero,
                       replicas > 1 ? fmt::format(" replicas {}", replicas) : "", recompute,
                       micro_batch, pp > 1 ? " " + schedule_text : "");
  }
};

/// The model with the blocks of one part of a stage, and the tokens of one context rank.
inline GptConfig part_of(const Job& job, const PlanLayout& layout) {
  GptConfig part = job.gpt;
  part.layers /= layout.pp * layout.chunks;
  part.seq_len /= layout.cp;
  return part;
}

/// Stages that include the one that takes most. From one stage to the next, the number of
/// micro-batches in flight only falls, and the number that wait for weight gradients only rises.
/// Embedding and head are at the ends.
inline std::vector<int64_t> stages_at_the_ends(int64_t pp) {
  std::vector<int64_t> all;
  for (int64_t s = 0; s < pp; ++s)
    if (s < 2 || s >= pp - 2) all.push_back(s);
  return all;
}

/// How many micro-batches are in flight on a stage: what chapter 12 promises.
inline int64_t in_flight(const Job& job, const PlanLayout& layout, int64_t stage) {
  if (layout.pp == 1) return 1;
  return promised_in_flight(layout.schedule, layout.pp, layout.chunks, layout.micros(job), stage);
}

/// What is computed again. In a pipeline, other micro-batches come between forward and backward.
inline Recompute recompute_of(const Job& job, const PlanLayout& layout) {
  return {layout.recompute, job.gpt.layers / (layout.pp * layout.chunks),
          /*at_once=*/layout.pp == 1};
}

/// Which activations a stage has: as in StageLayout::plan() of chapter 12 and plan() of chapter 11.
inline ActivationPlan activations_of(const Job& job, const PlanLayout& layout, int64_t stage) {
  const Recompute recompute = recompute_of(job, layout);
  ActivationPlan plan = recompute.plan(job.precision.plan());
  if (layout.pp > 1) {
    plan.slots = in_flight(job, layout, stage);
    plan.own_sets = !recompute.drops_blocks();
    plan.head = plan.own_output = layout.is_last(stage);
  }
  plan.tp = layout.tp;
  plan.sequence_ranks = job.sequence_parallel ? layout.tp : 1;
  return plan;
}

}  // namespace ladder::planner
