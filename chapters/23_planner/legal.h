// Which layouts are legal: the rules of the chapters, and what each rule says of a layout that
// breaks it.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "chapters/11_tensor_parallel/tensor_options.h"
#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/12_pipeline_parallel/stage_layout.h"
#include "chapters/23_planner/job.h"
#include "common/error.h"
#include "common/number_in.h"

namespace ladder::planner {

/// "" if the check of a chapter passes; otherwise what the chapter says.
template <class Check>
std::string refusal_of(Check&& check) {
  try {
    check();
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

/// A rule says why a layout breaks it; "" if it does not. Every rule can be asked about every
/// layout.
using Rule = std::string (*)(const Job&, const PlanLayout&);

inline std::string experts_exist(const Job& job, const PlanLayout& l) {
  return l.ep == 1 || job.gpt.has_experts() ? "" : "ep: the model has no experts";
}
inline std::string experts_are_whole(const Job& job, const PlanLayout& l) {
  return l.tp == 1 || !job.gpt.has_experts() ? "" : "tp: no chapter cuts an expert; legal is 1";
}
inline std::string experts_are_shared(const Job& job, const PlanLayout& l) {
  const int64_t count = job.gpt.experts.count;
  if (count == 0 || (count % l.ep == 0 && l.batch_ranks() % l.ep == 0)) return "";
  return fmt::format("ep {} must divide {} experts and the {} ranks of dp and cp", l.ep, count,
                     l.batch_ranks());
}
/// Chapter 11.
inline std::string tensors_are_cut(const Job& job, const PlanLayout& l) {
  return refusal_of(
      [&] { TensorParallelOptions{.tp = static_cast<int>(l.tp)}.degree(job.gpt, l.tp); });
}
/// Chapter 12. One stage has no schedule, and only one part.
inline std::string layers_are_cut(const Job& job, const PlanLayout& l) {
  const bool interleaved = l.schedule == PipelineKind::Interleaved && l.pp > 1;
  if (!interleaved && l.chunks != 1)
    return fmt::format("chunks {} with {} on {} stages: legal is 1", l.chunks,
                       to_string(l.schedule), l.pp);
  const std::string why = refusal_of([&] {
    PipelineOptions options;
    options.pp = static_cast<int>(l.pp);
    options.kind = l.schedule;
    if (interleaved) options.chunks = static_cast<int>(l.chunks);
    options.stage(job.gpt, 0, l.pp);
  });
  if (!why.empty() || !interleaved || l.chunks > 1) return why;
  return fmt::format("interleaved with chunks {}: legal are 2 or more", l.chunks);
}
inline std::string stages_reduce_once(const Job&, const PlanLayout& l) {
  if (l.zero < 2 || l.pp == 1) return "";
  return fmt::format("zero {} with pp {}: each micro-batch would be reduced by itself", l.zero,
                     l.pp);
}
/// Chapter 30. A group has two shards or more: with one it is stage 0.
inline std::string groups_are_alike(const Job&, const PlanLayout& l) {
  if (l.replicas == 1) return "";
  if (l.zero != 3 || l.pp * l.cp * l.ep > 1)
    return fmt::format("replicas {}: legal is 1 without zero 3, and with pp, cp or ep", l.replicas);
  if (l.dp % l.replicas == 0 && l.dp > l.replicas) return "";
  return fmt::format("replicas {} must divide dp {} and be less", l.replicas, l.dp);
}
/// Segments of every:K lie in one part of a stage.
inline std::string segments_fit(const Job& job, const PlanLayout& l) {
  const auto [every, number] = around_colon(l.recompute);
  const int64_t k = every == "every" ? number_in<int64_t>(number).value_or(0) : 0;
  const int64_t part = job.gpt.layers / (l.pp * l.chunks);
  if (k <= part) return "";
  return fmt::format("recompute {}: a part of {} stages has {} layers", l.recompute, l.pp, part);
}
inline std::string tokens_are_shared(const Job& job, const PlanLayout& l) {
  const int64_t T = job.gpt.seq_len;
  if (l.cp == 1 || T % (2 * l.cp) == 0) return "";
  return fmt::format("2 cp = {} chunks must divide {} tokens", 2 * l.cp, T);
}
inline std::string tokens_are_shared_again(const Job& job, const PlanLayout& l) {
  const int64_t own = job.gpt.seq_len / l.cp;
  if (!job.sequence_parallel || own % l.tp == 0) return "";
  return fmt::format("tp {} must divide the {} tokens of a context rank", l.tp, own);
}
inline std::string devices_are_all(const Job& job, const PlanLayout& l) {
  double all = 1;  // may be larger than 2^63
  for (const int64_t ranks : {l.tp, l.pp, l.dp, l.cp}) all *= static_cast<double>(ranks);
  if (all == static_cast<double>(job.gpus)) return "";
  return fmt::format(
      "tp {} x pp {} x dp {} x cp {} are {:.0f} devices, not {}; legal are --gpus that tp x pp x "
      "cp divides, with a --batch that dp divides",
      l.tp, l.pp, l.dp, l.cp, all, job.gpus);
}
inline std::string batch_is_shared(const Job& job, const PlanLayout& l) {
  return job.batch % l.dp == 0 ? ""
                               : fmt::format("dp {} must divide {} sequences", l.dp, job.batch);
}
inline std::string share_is_cut(const Job& job, const PlanLayout& l) {
  const int64_t share = job.batch / l.dp;
  const bool power = std::has_single_bit(static_cast<uint64_t>(l.micro_batch));
  if (share % l.micro_batch == 0 && (power || l.micro_batch == share)) return "";
  return fmt::format("micro-batch {} must be a power of two that divides {} sequences",
                     l.micro_batch, share);
}
inline std::string stages_take_turns(const Job& job, const PlanLayout& l) {
  if (l.schedule != PipelineKind::Interleaved || l.pp == 1 || l.micros(job) % l.pp == 0) return "";
  return fmt::format("interleaved: pp {} must divide {} micro-batches", l.pp, l.micros(job));
}

/// The more a rule says, the earlier it comes. The first two cost more than the others.
inline constexpr std::array<Rule, 14> kRules = {
    tensors_are_cut,    layers_are_cut,          experts_exist,      experts_are_whole,
    stages_reduce_once, groups_are_alike,        segments_fit,       tokens_are_shared,
    devices_are_all,    tokens_are_shared_again, experts_are_shared, batch_is_shared,
    share_is_cut,       stages_take_turns};

/// Why a layout is not legal; "" if it is legal.
inline std::string why_not(const Job& job, const PlanLayout& l) {
  for (const Rule rule : kRules)
    if (std::string why = rule(job, l); !why.empty()) return why;
  return "";
}

}  // namespace ladder::planner
