// --command: the program and the flags that start a layout, of Ladder and of two others.
//
// Names are those of docs/frameworks.md. A program that lacks something of the layout has a dash
// and the reason. Text, tokenizer, learning rate and the number of steps are the reader's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/11_tensor_parallel/tensor_options.h"
#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/20_context_parallel/context.h"
#include "chapters/23_planner/device.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/ladder_memory.h"
#include "chapters/23_planner/plan_options.h"
#include "common/model/config.h"
#include "common/names.h"

namespace ladder::planner {

/// The words of a command line.
class Words {
 public:
  explicit Words(std::string program) : text_(std::move(program)) {}

  template <class T>
  Words& add(std::string_view flag, const T& value) {
    text_ += fmt::format(" {} {}", flag, value);
    return *this;
  }
  Words& add(std::string_view flag) {
    text_ += fmt::format(" {}", flag);
    return *this;
  }
  /// A degree, if ranks share something.
  Words& degree(std::string_view flag, int64_t ranks) {
    return ranks > 1 ? add(flag, ranks) : *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

inline std::string none(std::string_view why) { return fmt::format("-: {}", why); }

/// Flags of a chapter's own layout.
inline void add_ladder_layout(Words& words, const std::string& chapter, const Job& job,
                              const PlanLayout& l) {
  const bool all = chapter.starts_with("33");
  const bool pipeline = chapter.starts_with("12") || chapter.starts_with("13") || all;
  if (pipeline || chapter.starts_with("11")) {
    words.degree("--tp", l.tp).degree("--pp", l.pp);
    if (all)
      words.add("--cp", l.cp).add("--context", to_string(job.context)).add("--ranks", l.gpus());
    else
      words.degree("--dp", l.dp);
    if (l.tp > 1 && job.sequence_parallel) words.add("--sequence-parallel");
    if (pipeline && l.pp > 1) words.add("--pipeline", to_string(l.schedule));
    if (pipeline) words.degree("--chunks", l.chunks);
    return;
  }
  words.degree("--ranks", l.gpus()).degree("--replicas", l.replicas).degree("--ep", l.ep);
  if (l.cp > 1) words.add("--cp", l.cp).add("--context", to_string(job.context));
}

/// A chapter's program. Its ranks are threads, or processes where `mpirun` starts it and --ranks is
/// left out.
inline std::string ladder_command(const Question& question, const Job& job, const PlanLayout& l,
                                  const LadderBytes& ladder) {
  if (ladder.chapter.empty()) return none(ladder.why);
  Words words("build/cpu/bin/ch" + ladder.chapter);
  const RunOptions& run = question.job.run;
  words.add("--model", run.model);
  for (const auto& [flag, value] : {std::pair{"--seq-len", run.seq_len},
                                    {"--layers", run.layers},
                                    {"--heads", run.heads},
                                    {"--channels", run.channels},
                                    {"--vocab", run.vocab}})
    if (value) words.add(flag, *value);
  words.add("--batch", job.batch).add("--micro-batch", l.micro_batch);
  words.add("--precision", job.precision.name).add("--recompute", l.recompute);
  add_ladder_layout(words, ladder.chapter, job, l);
  return words.add("--threads", job.threads).text();
}

/// "torchrun ..." for all devices, a process each.
inline Words launcher(const Job& job, const Device& device) {
  const int64_t in_node = std::gcd(job.gpus, static_cast<int64_t>(device.node));
  Words words("torchrun");
  words.add("--nproc-per-node", in_node).degree("--nnodes", job.gpus / in_node);
  return words;
}

inline void add_megatron_model(Words& words, const GptConfig& gpt) {
  words.add("--num-layers", gpt.layers).add("--hidden-size", gpt.channels);
  words.add("--num-attention-heads", gpt.heads).add("--ffn-hidden-size", gpt.expert_inner());
  words.add("--seq-length", gpt.seq_len);
  words.add("--max-position-embeddings", std::max(gpt.positions, gpt.seq_len));
  if (gpt.groups() != gpt.heads)
    words.add("--group-query-attention").add("--num-query-groups", gpt.groups());
  if (gpt.norm == Norm::Rms) words.add("--normalization", "RMSNorm");
  if (gpt.mlp == Mlp::SwiGlu) words.add("--swiglu");
  if (gpt.position == Position::Rope) words.add("--position-embedding-type", "rope");
  if (!gpt.bias) words.add("--disable-bias-linear");
  if (!gpt.tied_head) words.add("--untie-embeddings-and-output-weights");
  if (gpt.has_experts())
    words.add("--num-experts", gpt.experts.count).add("--moe-router-topk", gpt.experts.chosen);
}
/// Megatron-LM computes blocks again, or the named parts of all.
inline void add_megatron_recompute(Words& words, const Job& job, const PlanLayout& l) {
  const Recompute recompute = recompute_of(job, l);
  if (recompute.drops_blocks()) {
    words.add("--recompute-granularity", "full").add("--recompute-method", "uniform");
    words.add("--recompute-num-layers", recompute.sets());
  } else if (l.recompute.starts_with("selective")) {
    words.add("--recompute-granularity", "selective").add("--recompute-modules");
    if (l.recompute != "selective:mlp") words.add("core_attn");
    if (l.recompute != "selective:attention") words.add("mlp");
  }
}
inline void add_megatron_zero(Words& words, const PlanLayout& l) {
  if (l.zero == 1) words.add("--use-distributed-optimizer");
  if (l.zero < 2) return;
  words.add("--use-megatron-fsdp").add("--ckpt-format", "fsdp_dtensor");
  words.add("--data-parallel-sharding-strategy",
            l.zero == 2 ? "optim_grads" : "optim_grads_params");
  words.degree("--num-distributed-optimizer-instances", l.replicas);
}

inline std::string megatron_command(const Job& job, const Device& device, const PlanLayout& l) {
  if (l.pp > 1 && (l.schedule == PipelineKind::GPipe || l.schedule == PipelineKind::ZbH1))
    return none(fmt::format("it has no schedule {}", to_string(l.schedule)));
  Words words = launcher(job, device);
  words.add("pretrain_gpt.py");
  add_megatron_model(words, job.gpt);
  words.add("--micro-batch-size", l.micro_batch).add("--global-batch-size", job.batch);
  if (job.precision.narrow()) words.add(job.precision.name == "fp16" ? "--fp16" : "--bf16");
  if (job.precision.fp8()) words.add("--fp8-format", "hybrid");
  if (job.precision.narrow() && job.gradients == Gradients::Narrow)
    words.add("--grad-reduce-in-bf16");
  words.degree("--tensor-model-parallel-size", l.tp);
  if (l.tp > 1 && job.sequence_parallel) words.add("--sequence-parallel");
  words.degree("--pipeline-model-parallel-size", l.pp);
  words.degree("--num-virtual-stages-per-pipeline-rank", l.chunks);
  words.degree("--context-parallel-size", l.cp).degree("--expert-model-parallel-size", l.ep);
  add_megatron_zero(words, l);
  add_megatron_recompute(words, job, l);
  return words.text();
}

/// Why torchtitan cannot run it; "": it can.
inline std::string why_no_torchtitan(const Job& job, const PlanLayout& l) {
  constexpr std::array kModels = {"llama3-8b", "llama3-70b", "llama3-405b"};
  if (std::ranges::find(kModels, job.gpt.name) == kModels.end())
    return fmt::format("of these models it has {}", fmt::join(kModels, ", "));
  const GptConfig theirs = preset(job.gpt.name);
  if (theirs.layers != job.gpt.layers || theirs.channels != job.gpt.channels ||
      theirs.heads != job.gpt.heads)
    return fmt::format("its {} has other sizes", job.gpt.name);
  if (l.zero == 1 || l.zero == 2)
    return "it shards parameters, too (--zero 3), or nothing (--zero 0)";
  if (l.zero == 0 && l.cp > 1) return "its context ranks shard parameters, too (--zero 3)";
  if (l.pp > 1 && l.schedule == PipelineKind::ZbH1) return "it has no schedule zb-h1";
  if (l.recompute != "none" && l.recompute != "full" && l.recompute != "selective")
    return fmt::format("its recomputation knows none, full and selective, not {}", l.recompute);
  return "";
}

inline std::string torchtitan_command(const Job& job, const Device& device, const PlanLayout& l) {
  if (const std::string why = why_no_torchtitan(job, l); !why.empty()) return none(why);
  std::string config = job.gpt.name;
  std::ranges::replace(config, '-', '_');
  Words words = launcher(job, device);
  words.add("-m", "torchtitan.train").add("--module", "llama3").add("--config", config);
  const int64_t T = job.gpt.seq_len;
  words.add("--training.max_context_length", T);
  words.add("--training.num_tokens_per_microbatch_per_dp_rank", l.micro_batch * T);
  words.add("--training.num_tokens_per_train_step", job.tokens());
  const bool shards = l.zero == 3;
  words.add("--parallelism.data_parallel_replicate_degree", shards ? l.replicas : l.dp);
  words.add("--parallelism.data_parallel_shard_degree", shards ? l.dp / l.replicas : 1);
  words.degree("--parallelism.tensor_parallel_degree", l.tp);
  words.degree("--parallelism.context_parallel_degree", l.cp);
  if (l.pp > 1) {
    constexpr auto kSchedules = std::array{"GPipe", "1F1B", "Interleaved1F1B", ""};
    words.add("--parallelism.pipeline_parallel_degree", l.pp);
    words.add("--parallelism.pipeline_parallel_schedule",
              kSchedules[static_cast<size_t>(l.schedule)]);
    words.add("--parallelism.pipeline_parallel_layers_per_stage",
              job.gpt.layers / (l.pp * l.chunks));
    words.add("--parallelism.num_pp_microbatches", l.micros(job));
  }
  std::string note;
  if (l.recompute != "none") note += fmt::format("  # activation_checkpoint {}", l.recompute);
  if (l.tp > 1 && !job.sequence_parallel) note += "  # enable_sequence_parallel off";
  return words.text() + note;
}

/// A line for each program.
inline std::string commands_text(const Question& question, const Job& job, const Device& device,
                                 const PlanLayout& l, const LadderBytes& ladder) {
  return fmt::format("layout: {}\nLadder: {}\nMegatron-LM: {}\ntorchtitan: {}\n", l.text(),
                     ladder_command(question, job, l, ladder), megatron_command(job, device, l),
                     torchtitan_command(job, device, l));
}

}  // namespace ladder::planner
