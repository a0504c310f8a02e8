// One stage of the pipeline: its model chunks, its memory for each micro-batch in flight, and
// its messages to the stages before and after it.
//
// A micro-batch goes forward through a model chunk. Its gradient comes much later, and other
// micro-batches pass in between. So activations lie in slots, one for each micro-batch in flight:
//
//   F0 F1 F2 B0 F3 B1 ...      slot 0: F0 .. B0, then F3 ..     slot 1: F1 .. B1     slot 2: F2 ..
//
// All slots share what --recompute drops. Backward computes it again. This includes the last
// segment, because other micro-batches have been here since. If weight gradients come separately
// (zb-h1), it is computed again for them, too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "chapters/12_pipeline_parallel/mailbox.h"
#include "chapters/12_pipeline_parallel/part_grads.h"
#include "chapters/12_pipeline_parallel/pipeline.h"
#include "chapters/12_pipeline_parallel/proof/bubble.h"
#include "chapters/12_pipeline_parallel/stage_layout.h"
#include "common/comm/comm.h"
#include "common/data/text.h"
#include "common/model/activations.h"
#include "common/run/log.h"
#include "kernels/arena.h"

namespace ladder {

/// A micro-batch of n sequences in one model chunk.
struct InFlight {
  int64_t first_block;  ///< of the chunk, in the model
  bool embed, head;     ///< whether the chunk has them
  Activations acts;     ///< acts.embed: what its first block reads, also from the stage before
  ChunkGrads grads;
  Tensor tokens, targets;  ///< (n,T)
  Tensor losses;           ///< (n)

  /// For chapter 13: the chunk's first section of parameters, with which backward ends.
  int64_t first_section() const { return embed ? 0 : first_block + 1; }
  /// What the chunk writes, and its gradient: (n,T,C). Where ranks split each sequence (chapter
  /// 13), T is a rank's part of it.
  Tensor out() const { return acts.stream(std::ssize(acts.blocks)); }
  Tensor dout() const { return grads.stream(acts.blocks.size()); }
};

/// [chunk][micro]: the slot of each micro-batch in each chunk of a stage. A forward takes the first
/// free slot; the slot is free again after the weight gradients. The toy has a queue in place of
/// slots: there what came first leaves first. With two chunks it does not, nor with late W.
using Slots = std::vector<std::vector<size_t>>;

inline Slots slots_of(const std::vector<Action>& list, int64_t chunks, int64_t micros) {
  Slots slots(chunks, std::vector<size_t>(micros));
  std::vector<bool> used;
  for (const Action& a : list) {
    size_t& slot = slots[a.chunk][a.micro];
    if (a.what == Do::Forward) {
      slot = std::ranges::find(used, false) - used.begin();
      used.resize(std::max(used.size(), slot + 1));
      used[slot] = true;
    }
    if (ends_flight(a.what)) used[slot] = false;
  }
  return slots;
}

class Stage {
 public:
  Mailbox activations, gradients;
  ActionTimes times;

  /// @param stages the ranks of the pipeline, by stage
  /// @param plan  what the stage has and does; must live longer than this
  /// @param micro sequences of a micro-batch
  Stage(Arena& arena, const Ctx& ctx, Comm& stages, const StageLayout& plan,
        const ActivationPlan& acts, int64_t micro)
      : Stage(arena, ctx, stages, plan, alloc_slots(arena, plan.model_chunk, micro, acts),
              alloc_chunk_grads(arena, plan.model_chunk, micro, acts, plan.waiting())) {}

  /// Adds what the constructor allocates to a prediction.
  static void add_bytes(MemoryBytes& bytes, const StageLayout& plan, const ActivationPlan& acts,
                        int64_t micro) {
    bytes[Mem::Activation] += activation_bytes(plan.model_chunk, micro, acts);
    bytes[Mem::Workspace] += chunk_grad_bytes(plan.model_chunk, micro, acts, plan.waiting());
    bytes[Mem::Comm] += plan.position.size == 1 ? 0 : 2 * kMailbox * micro * plan.message(acts);
  }

  /// Counts the micro-batches in flight, so each action begins once, in order. Returns the tensors
  /// that `action` works on.
  /// @param batch,losses those of the whole step, in micro-batches of n sequences
  InFlight begin_action(const Action& action, const Batch& batch, Tensor losses, int64_t n) {
    in_flight_ += action.what == Do::Forward;
    most_ = std::max(most_, in_flight_);
    in_flight_ -= ends_flight(action.what);
    const int64_t begin = action.micro * n;
    InFlight f = by_itself(action.chunk, batch.slice(begin, n), losses.slice(begin, n));
    f.acts = acts_.at(slots_[action.chunk][action.micro]).first(n);
    f.grads = grads_[action.micro % grads_.size()].first(n);
    return f;
  }
  /// The tensors of `batch` in one chunk, in slot 0: enough for a batch that is alone in the
  /// pipeline and goes forward only. begin_action() puts in the slot of a micro-batch.
  InFlight by_itself(int64_t chunk, const Batch& batch, Tensor losses) const {
    const int64_t n = batch.tokens.dim(0);
    return {.first_block = plan_->position.blocks(plan_->gpt.layers, chunk).begin,
            .embed = plan_->position.has_embed() && chunk == 0,
            .head = plan_->position.has_head() && chunk + 1 == plan_->position.chunks,
            .acts = acts_[0].first(n),
            .grads = grads_[0].first(n),
            .tokens = batch.tokens,
            .targets = batch.targets,
            .losses = losses};
  }
  /// For chapter 33: of rotary positions; all slots share them. Null if the model has none.
  Tensor angles() const { return acts_[0].blocks[0].attn.angles; }
  /// Sends or receives what `what` says. Outputs go to the next stage and become its inputs; their
  /// gradients come back. Returns false if `what` is no message.
  bool send_or_receive(const InFlight& f, Do what) {
    switch (what) {
      case Do::RecvActivation: activations.recv(f.acts.embed); break;
      case Do::SendActivation: activations.send(f.out()); break;
      case Do::RecvGradient: gradients.recv(f.dout()); break;
      case Do::SendGradient: gradients.send(f.grads.stream(0)); break;
      default: return false;
    }
    return true;
  }
  void begin_step() {
    times.begin_step();
    in_flight_ = most_ = 0;
  }
  /// Returns when the neighbors have received everything.
  void end_step() {
    activations.finish();
    gradients.finish();
    CHECK(in_flight_ == 0, "{} micro-batches are still in flight at the end of a step", in_flight_);
  }

  /// Reports on rank 0 what the stage did in the last step of `pipeline`, and its bubble. All
  /// stages call it.
  void report(Log& log, const Pipeline& pipeline) const {
    report_pipeline(log, stages_, pipeline, times, most_);
  }
  /// Counts in the report what it sends.
  void show(Log& log) const {
    log.count(activations.group());
    log.count(gradients.group());
  }
  /// Bytes that this rank sent in the last step.
  int64_t sent(const Log& log) const {
    return log.sent_in_step(activations.group()) + log.sent_in_step(gradients.group());
  }

 private:
  Stage(Arena& arena, const Ctx& ctx, Comm& stages, const StageLayout& plan,
        std::vector<Activations> acts, std::vector<ChunkGrads> grads)
      : activations(arena, ctx, stages, +1, acts[0].embed),
        gradients(arena, ctx, stages, -1, acts[0].embed),
        times(plan.actions.size(), /*on=*/!ctx.device),
        stages_(stages),
        plan_(&plan),
        slots_(slots_of(plan.actions, plan.position.chunks, plan.micros)),
        acts_(std::move(acts)),
        grads_(std::move(grads)) {}

  Comm& stages_;
  const StageLayout* plan_;
  Slots slots_;
  std::vector<Activations> acts_;  ///< [slot]
  /// [micro % size]: as many as micro-batches that wait for W. Those have neighboring numbers, so
  /// no two of them take the same.
  std::vector<ChunkGrads> grads_;
  int64_t in_flight_ = 0, most_ = 0;
};

}  // namespace ladder
