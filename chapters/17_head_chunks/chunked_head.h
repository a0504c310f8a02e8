// --head-chunk: computes the logits of only a few sequences at a time.
//
// Logits are Vp numbers per token. With a vocabulary of 50,304 this is more than a block keeps.
// Nothing needs all logits at once. A chunk of whole sequences goes through the head, the loss and
// back; then the next chunk uses the same memory. Only the gradient of the head's weights is a sum
// over chunks. The tree of chapter 04 joins it, so chunks change no bit.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "chapters/04_clipping/accumulate.h"
#include "common/error.h"
#include "common/model/activations.h"
#include "common/run/command_line.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {

struct HeadChunkOptions {
  int64_t chunk = 0;  ///< sequences of a chunk; 0: the whole micro-batch

  void add_to(CommandLine& line) {
    line.group("17_head_chunks");
    line.add("--head-chunk", chunk, "sequences whose logits exist; 0: those of a micro-batch");
  }

  /// How many sequences a chunk has.
  /// @param micro sequences of a micro-batch
  /// @throws UserError unless a chunk is a power of two: otherwise it is no subtree of the batch
  int64_t of(int64_t micro) const {
    if (chunk < 0 || (chunk > 0 && !std::has_single_bit(static_cast<uint64_t>(chunk))))
      throw UserError("--head-chunk {}; legal are 0 (a micro-batch at once) and powers of two",
                      chunk);
    return chunk == 0 ? micro : std::min(chunk, micro);
  }
  int64_t chunks(int64_t micro) const { return (micro + of(micro) - 1) / of(micro); }
  /// `base` with logits for one chunk.
  ActivationPlan plan(ActivationPlan base, int64_t micro) const {
    base.logits = of(micro);
    return base;
  }
};

/// How many chunks a micro-batch with activations `a` has.
inline int64_t head_chunks(const Activations& a) {
  return (a.norm.dim(0) + a.logits.dim(0) - 1) / a.logits.dim(0);
}

/// The tensors of the head for chunk j: n sequences of a micro-batch.
struct HeadChunk {
  Tensor logits;   ///< (n,T,Vp), the same memory for every chunk
  Tensor inp;      ///< (n,T,C), the input of the head
  Tensor losses;   ///< (n)
  Tensor targets;  ///< (n,T) I32
  Tensor dinp;     ///< (n,T,C), or null

  HeadChunk(int64_t j, const Activations& a, Tensor all_losses, Tensor all_targets,
            Tensor all_dinp = {}) {
    const int64_t begin = j * a.logits.dim(0), n = std::min(a.logits.dim(0), a.norm.dim(0) - begin);
    logits = a.logits.first(n);
    inp = a.norm.slice(begin, n);
    losses = all_losses.slice(begin, n);
    targets = all_targets.slice(begin, n);
    if (all_dinp) dinp = all_dinp.slice(begin, n);
  }
};

/// The gradient of the head's weights (Vp,C) in one micro-batch, chunk by chunk.
class HeadGrad {
 public:
  /// @param chunks the most chunks of a micro-batch
  /// @param steps GA, the micro-steps of a step
  HeadGrad(Arena& arena, const GptConfig& config, int64_t chunks, int64_t steps) {
    for (int64_t i = 0; i < spare(chunks, steps); ++i)
      spare_.push_back(arena.alloc(Mem::Workspace, fmt::format("head_grads{}", i), Dtype::F32,
                                   {config.padded_vocab, config.channels}));
  }

  /// Bytes of Workspace.
  static int64_t bytes(const GptConfig& config, int64_t chunks, int64_t steps) {
    return 4 * spare(chunks, steps) * config.padded_vocab * config.channels;
  }

  /// Begins a micro-batch of `chunks` chunks. Its sum is written to dw or added to it: see `into`.
  void begin(Tensor dw, Into into, int64_t chunks) {
    dw_ = dw;
    chunks_ = chunks;
    // To add: dw holds the sum of earlier micro-batches, and this sum must be finished before it is
    // added there. So it needs a first buffer of its own.
    buffers_ = spare_;
    if (into == Into::Write || chunks == 1) buffers_.insert(buffers_.begin(), dw);
    into_ = chunks == 1 ? into : Into::Write;
  }
  /// Begins chunk j. Its head_backward_weight puts the gradient into sum(), in the way that into()
  /// says.
  void begin_chunk(int64_t j) { tree_.begin(j); }
  Tensor sum() const { return buffers_[tree_.top()]; }
  Into into() const { return tree_.into() == Into::Write ? into_ : Into::Add; }
  void end_chunk(const Ctx& ctx, int64_t j) {
    tree_.join(j, chunks_, [&](size_t to, size_t from) {
      ctx.kernels->add(ctx, buffers_[to], buffers_[to], buffers_[from]);
    });
    tree_.end(j, chunks_);
    if (j + 1 == chunks_ && buffers_[0].ptr != dw_.ptr)
      ctx.kernels->add(ctx, dw_, dw_, buffers_[0]);
  }

 private:
  /// How many buffers there are beside dw.
  static int64_t spare(int64_t chunks, int64_t steps) {
    return chunks == 1 ? 0 : TreeCounter::buffers(chunks) - (steps == 1 ? 1 : 0);
  }

  std::vector<Tensor> spare_, buffers_;
  Tensor dw_;
  int64_t chunks_ = 1;
  Into into_ = Into::Write;
  TreeCounter tree_;
};

}  // namespace ladder
