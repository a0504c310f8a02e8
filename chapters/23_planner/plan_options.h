// The flags that say what to plan: the model, the machine, and the fixed parts of the layout.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/16_fp8/fp8.h"
#include "chapters/20_context_parallel/context.h"
#include "chapters/23_planner/candidates.h"
#include "chapters/23_planner/job.h"
#include "chapters/23_planner/run_cost.h"
#include "common/error.h"
#include "common/model/config.h"
#include "common/names.h"
#include "common/run/command_line.h"
#include "common/run/options.h"

namespace ladder::planner {

/// The model and the machine.
struct JobOptions {
  RunOptions run;  // --model and what changes it, --batch
  std::string device = "h100";
  std::vector<std::string> known_devices = {};  ///< for --help
  int64_t gpus = 8;
  Gradients gradients = Gradients::Fp32;
  ContextWay context = ContextWay::Gather;
  int threads = 1;
  bool no_sequence_parallel = false;
  double flops = 0, inference_tokens = 0;
  std::optional<double> reserve = {};  ///< GiB

  /// What NCCL takes of a device beside tensors. A communicator takes 688 MiB where it joins more
  /// than two devices (four A100, github.com/NVIDIA/nccl/issues/964), and a rank has up to three:
  /// of its tensor ranks, of the ranks that split its batch, and of its stages.
  int64_t reserved_bytes() const {
    return std::llround(reserve.value_or(gpus > 1 ? 2 : 0) * (1 << 30));
  }

  void add_to(CommandLine& line) {
    line.group("Model");
    line.add("--model", run.model, fmt::format("one of {}", fmt::join(preset_names(), ", ")));
    const FlagRules of_model{.shown_default = "the model's"};
    line.add("--seq-len", run.seq_len, "tokens of a sequence", of_model);
    line.add("--layers", run.layers, "blocks", of_model);
    line.add("--heads", run.heads, "attention heads", of_model);
    line.add("--channels", run.channels, "width of the residual stream", of_model);
    line.add("--vocab", run.vocab, "tokens that there are", of_model);
    line.add("--batch", run.batch, "sequences of a step, over all devices");
    line.group("Machine");
    line.add("--gpus", gpus, "devices in all");
    line.add("--device", device,
             fmt::format("one of {}, or a file .toml", fmt::join(known_devices, ", ")));
    line.add("--reserve", reserve, "GiB of a device that no tensor may take: NCCL's buffers",
             {.shown_default = "2 on more than one device, otherwise 0"});
    line.group("23_planner");
    line.add("--gradients", gradients,
             "what the usual accounting has of them beside 16-bit weights: fp32 (18 bytes a "
             "parameter), 16-bit (16) or both (20)");
    line.add("--context", context, "of chapter 20, for Ladder's bytes: gather, ulysses or ring");
    line.add("--threads", threads, "of a rank, for Ladder's bytes");
    line.add("--no-sequence-parallel", no_sequence_parallel,
             "tensor ranks do not share tokens between the layers");
    line.add("--compute", flops,
             "operations of a whole run: print which model and how many tokens they are best spent "
             "on, and stop; 0: plan");
    line.add("--inference-tokens", inference_tokens,
             "that the trained model will read and write: for --compute, which smaller model with "
             "more tokens takes the fewest operations in all");
  }
  /// @throws UserError
  void check() {
    run.plan_only = run.takes_experts = true;
    require_range("--gpus", gpus, 1, 1 << 20);
    require_range("--batch", run.batch, 1, 1 << 20);
    require_range("--threads", threads, 1, 1 << 20);
    if (reserve && !(*reserve >= 0 && *reserve <= 1e6))
      throw UserError("--reserve must be from 0 to 1e6 GiB, not {}", *reserve);
    if (!(flops == 0 || (flops >= 1e6 && flops <= 1e40)))
      throw UserError("--compute must be 0, or from 1e6 to 1e40, not {}", flops);
    if (!(inference_tokens >= 0 && inference_tokens <= 1e30))
      throw UserError("--inference-tokens must be from 0 to 1e30, not {}", inference_tokens);
    if (inference_tokens > 0 && flops == 0) throw UserError("--inference-tokens is for --compute");
    run.check_size(gpus);
  }
};

/// What the search may not choose itself.
struct LayoutOptions {
  Fixed fixed;
  std::string recompute, schedule;

  void add_to(CommandLine& line) {
    line.group("Layout: of what is not given, all that is legal is searched");
    const FlagRules any{.shown_default = "any"};
    line.add("--tp", fixed.tp, "ranks that split each layer", any);
    line.add("--pp", fixed.pp, "stages", any);
    line.add("--dp", fixed.dp, "ranks that split the batch", any);
    line.add("--cp", fixed.cp, "ranks that split each sequence", any);
    line.add("--ep", fixed.ep, "ranks that share the experts, of those of dp and cp", any);
    line.add("--zero", fixed.zero, "stage of ZeRO, 0 to 3", any);
    line.add("--replicas", fixed.replicas, "groups with all shards of stage 3 each (chapter 30)",
             any);
    line.add("--recompute", recompute, "a policy of chapter 06", any);
    line.add("--micro-batch", fixed.micro_batch,
             "sequences of one forward: a power of two, or all of a replica", any);
    line.add("--schedule", schedule, "of a pipeline",
             {.legal = {kNames<PipelineKind>.begin(), kNames<PipelineKind>.end()},
              .shown_default = "any"});
    line.add("--chunks", fixed.chunks, "model chunks of a stage, for interleaved", any);
  }
  /// @throws UserError
  void check() {
    for (const auto& [flag, value] : {std::pair{"--tp", fixed.tp},
                                      {"--pp", fixed.pp},
                                      {"--dp", fixed.dp},
                                      {"--cp", fixed.cp},
                                      {"--ep", fixed.ep},
                                      {"--replicas", fixed.replicas},
                                      {"--micro-batch", fixed.micro_batch},
                                      {"--chunks", fixed.chunks}})
      require_range(flag, value.value_or(1), 1, 1 << 20);
    require_range("--zero", fixed.zero.value_or(0), 0, 3);
    fixed.schedule = named<PipelineKind>(schedule);
    if (fixed.chunks > 1 && fixed.schedule != PipelineKind::Interleaved)
      throw UserError("--chunks is for --schedule interleaved, not {}",
                      schedule.empty() ? "any" : schedule);
    if (!recompute.empty()) fixed.recompute = recompute;
  }
};

/// Everything that a plan depends on, except the file of the device.
struct Question {
  JobOptions job;
  LayoutOptions layout;
  Fp8Options precision{{.name = "bf16"}};
  CostOptions cost;

  /// Reads the flags of all four, and of `more`. @throws UserError
  template <class... More>
  void read(int argc, const char* const* argv, More&... more) {
    CommandLine("23_planner: memory, time and cost of any layout, and which is best")
        .read(argc, argv, job, layout, precision, cost, more...);
  }
  Job asked() const {
    return {.gpt = job.run.gpt(),
            .gpus = job.gpus,
            .batch = job.run.batch,
            .precision = precision,
            .gradients = job.gradients,
            .sequence_parallel = !job.no_sequence_parallel,
            .context = job.context,
            .threads = job.threads};
  }
};

}  // namespace ladder::planner
