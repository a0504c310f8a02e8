// Which blocks a stage has, and what its schedule needs: memory, messages, operations.
//
// A stage has `chunks` model chunks of neighboring blocks (one, unless the schedule is
// interleaved). Chunk g of the model is on stage g % p and reads what chunk g - 1 wrote. The first
// has the embedding. The last has the last norm and the head.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/12_pipeline_parallel/proof/pipeline_check.h"
#include "common/error.h"
#include "common/model/activations.h"
#include "common/model/config.h"
#include "common/model/layout.h"
#include "common/run/command_line.h"

namespace ladder {

struct PipelineOptions {
  int pp = 0;
  PipelineKind kind = PipelineKind::OneFOneB;
  std::optional<int> chunks;

  void add_to(CommandLine& line) {
    line.group("12_pipeline_parallel");
    line.add("--pp", pp,
             "stages that share the layers; 0: all ranks, or 1 if there are other axes");
    line.add("--pipeline", kind, "gpipe, 1f1b, interleaved or zb-h1");
    line.add("--chunks", chunks, "model chunks of a stage, for interleaved",
             {.shown_default = "2"});
  }

  /// Checks what can be checked before a rank starts. stage() knows the model and checks more.
  void check() const {
    constexpr int kMost = 1 << 12;  // blocks of a model
    require_range("--pp", pp, 0, kMost);
  }

  /// How `stages` split the layers, seen from one.
  /// @throws UserError if they cannot, naming what is legal
  StageRank stage(const GptConfig& gpt, int64_t rank, int64_t stages) const {
    if (chunks && *chunks < 1) throw UserError("--chunks must be at least 1, not {}", *chunks);
    if (chunks && !interleaved())
      throw UserError("--chunks is for --pipeline interleaved, not {}", to_string(kind));
    if (gpt.tied_head && stages > 1)
      throw UserError(
          "--tied-head with {} stages: the first has the embedding and the last the head, which "
          "are one table; legal are --pp 1, or no --tied-head",
          stages);
    if (pp != 0 && pp != stages)
      throw UserError("--pp {} with {} ranks: each of them is a stage; legal are --pp {}, or 0", pp,
                      stages, stages);
    const auto each = [&](int64_t p) { return interleaved() && p > 1 ? chunks.value_or(2) : 1; };
    std::vector<int64_t> legal;
    for (int64_t p = 1; p <= gpt.layers; ++p)
      if (gpt.layers % (p * each(p)) == 0) legal.push_back(p);
    if (std::find(legal.begin(), legal.end(), stages) == legal.end())
      throw UserError(
          "--pp {}{} must divide {} layers; legal are {}", stages,
          each(stages) > 1 ? fmt::format(": {} model chunks on each", each(stages)) : "",
          gpt.layers, fmt::join(legal, ", "));
    return {rank, stages, each(stages)};
  }

  /// The schedule of all stages, checked. @throws UserError as stage() and make_pipeline() do
  Pipeline pipeline(const GptConfig& gpt, int64_t stages, int64_t micros) const {
    Pipeline all = make_pipeline(kind, stages, stage(gpt, 0, stages).chunks, micros);
    check_pipeline(all);
    return all;
  }

 private:
  bool interleaved() const { return kind == PipelineKind::Interleaved; }
};

/// What one rank does as a stage of a pipeline.
struct StageLayout {
  StageRank position;     ///< which stage this is, of how many: it says which blocks are here
  GptConfig gpt;          ///< the model
  GptConfig model_chunk;  ///< the same, with only the blocks of one model chunk
  PipelineOptions options;
  int64_t micros;               ///< GA, micro-batches of a step
  std::vector<Action> actions;  ///< what this stage does in a step, in order

  /// @param all the schedule, as options_.pipeline() makes it
  StageLayout(const PipelineOptions& options_, const GptConfig& gpt_, int64_t rank_,
              const Pipeline& all)
      : position(options_.stage(gpt_, rank_, all.stages)),
        gpt(gpt_),
        model_chunk(gpt_),
        options(options_),
        micros(all.micros),
        actions(all.lists[static_cast<size_t>(rank_)]) {
    model_chunk.layers = position.blocks(gpt.layers, 0).size();
  }

  /// The stage that has the head. Losses and logits come from it.
  int last() const { return static_cast<int>(position.size) - 1; }

  /// `all` without what `recompute` drops, for the micro-batches in flight. They share the sets of
  /// dropped tensors if whole blocks are dropped.
  ActivationPlan plan(const ActivationPlan& all, const Recompute& recompute) const {
    ActivationPlan own = recompute.plan(all);
    own.slots = most_in_flight(actions);
    own.own_sets = !recompute.drops_blocks();
    // In backward only the head's norm reads the last output. Other stages have sent theirs.
    own.head = own.own_output = position.has_head();
    return own;
  }

  /// The most micro-batches that are between their BackwardInput and the end of their
  /// BackwardWeight.
  int64_t waiting() const {
    int64_t now = 0, most = 0;
    for (const Action& a : actions) {
      now += a.what == Do::BackwardInput;
      most = std::max(most, now);
      now -= a.what == Do::BackwardWeight;
    }
    return most;
  }

  /// Where the gradients of each model chunk of the stage lie; the last range is that of the head.
  std::vector<Range> pieces(const ParamLayout& params) const {
    std::vector<Range> all;
    for (int64_t chunk = 0; chunk < position.chunks; ++chunk) {
      const Range blocks = position.blocks(gpt.layers, chunk);
      all.push_back({chunk == 0 ? 0 : params.section(blocks.begin + 1).begin,
                     params.section(blocks.end).end});
    }
    all.push_back(params.grads().section(gpt.layers + 1));
    return all;
  }

  /// Bytes that the stage sends in a step of `sequences`: the output of each model chunk but the
  /// last, and the gradient of the input of each but the first.
  int64_t traffic(const ActivationPlan& acts, int64_t sequences) const {
    const int64_t outputs = position.chunks - (position.has_head() ? 1 : 0);
    const int64_t inputs = position.chunks - (position.has_embed() ? 1 : 0);
    return (outputs + inputs) * sequences * message(acts);
  }
  /// Bytes of a message, for one sequence.
  int64_t message(const ActivationPlan& acts) const {
    return acts.local_tokens(gpt.seq_len) * gpt.channels * size_of(acts.dtype);
  }
  /// How often backward computes dropped activations again: once, or once for inputs and once for
  /// weights.
  int64_t times_again() const { return options.kind == PipelineKind::ZbH1 ? 2 : 1; }
  /// Operations of the products that are computed again.
  int64_t extra_flops(const Recompute& recompute, int64_t sequences) const {
    return times_again() * position.chunks * recompute.extra_flops(model_chunk, sequences);
  }
};

}  // namespace ladder
