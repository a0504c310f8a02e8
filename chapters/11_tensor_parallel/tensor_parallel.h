// Tensor parallelism: ranks split each layer (Shoeybi et al., "Megatron-LM", arXiv 1909.08053).
//
// A rank has some of the attention heads and some of the MLP's channels. To compute these, it needs
// no other rank. The projection that follows reads the channels of all ranks, so its product is a
// sum over ranks. In backward, the gradient of the part's input is a sum over ranks, too:
//
//            norm --f--> qkv, attention --> proj --g--> residual
//
//            forward           backward
//      f     nothing           all-reduce of the gradient of norm's output
//      g     all-reduce        nothing
//
// f and g are conjugate: each is the other's backward. So a block takes two all-reduces in forward
// and two in backward, of B T C elements each. All ranks compute layer norms, biases after g and
// the residual stream alike; with --sequence-parallel they split these (sequence_parallel.h).
//
// Ranks split the vocabulary, too. A rank embeds the tokens whose rows it has, and writes -0 for
// the others, so the sum over ranks is the embedding. (x + -0 is x for each x; +0 would turn -0
// into +0.) A rank computes its own columns of the logits. For softmax and loss, ranks exchange
// three numbers per token: a maximum, a sum, and the target's logit. No rank ever has all logits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "chapters/11_tensor_parallel/sequence_parallel.h"
#include "chapters/11_tensor_parallel/tensor_options.h"
#include "common/comm/reduction.h"
#include "common/data/text.h"
#include "common/model/activations.h"
#include "common/model/config.h"
#include "common/model/layout.h"
#include "common/model/parts.h"
#include "common/run/log.h"
#include "kernels/arena.h"

namespace ladder {

/// What the ranks that split each layer exchange.
class TensorParallel {
 public:
  /// @param ctx    its `leaves` are those of a rank's part of a sum: kLeaves / comm.size()
  /// @param comm   ranks that split each layer, in the order of their parts
  /// @param params what this rank has of the model
  /// @param gpt    the model with the tokens of these ranks: whole sequences, except in chapter 33
  /// @param micro  sequences of a micro-batch, at most
  TensorParallel(Arena& arena, const Ctx& ctx, Comm& comm, const ParamLayout& params,
                 const ActivationPlan& acts, int64_t micro)
      : TensorParallel(arena, ctx, comm, params, params.config(), acts, micro) {}
  TensorParallel(Arena& arena, const Ctx& ctx, Comm& comm, const ParamLayout& params,
                 const GptConfig& gpt, const ActivationPlan& acts, int64_t micro)
      : comm_(comm),
        group_(comm.split(0, comm.rank())),
        rows_(own_rows(params)),
        own_vocab_(std::clamp<int64_t>(params.config().vocab - rows_.begin, 0, rows_.size())),
        activations_(*group_, ctx, Reduction::Halving, arena, acts.dtype,
                     largest_sum(gpt, acts, micro)),
        sums_(comm, ctx, Reduction::Halving, arena, Dtype::F32, micro * gpt.seq_len) {
    const TensorRank own = params.tensor_rank();
    CHECK(own.rank == comm.rank() && own.size == comm.size(), "part {} of {} on rank {} of {}",
          own.rank, own.size, comm.rank(), comm.size());
    if (acts.sequence_ranks > 1) sequence_.emplace(arena, ctx, *group_, gpt, acts.dtype, micro);
    const auto alloc = [&](const char* name) {
      return arena.alloc(Mem::Activation, name, Dtype::F32, {micro, gpt.seq_len});
    };
    softmax_ = {alloc("softmax.max"), alloc("softmax.sum"), alloc("softmax.target")};
  }

  /// Adds what the constructor allocates to a prediction.
  static void add_bytes(MemoryBytes& bytes, const GptConfig& gpt, const ActivationPlan& acts,
                        int64_t micro, int64_t token_chunks = kTokenChunks) {
    const int64_t tokens = micro * gpt.seq_len;
    const int ranks = static_cast<int>(acts.tp);
    bytes[Mem::Activation] += 12 * tokens;
    bytes[Mem::Comm] += size_of(acts.dtype) *
                            Collectives::workspace_elements(ranks, largest_sum(gpt, acts, micro)) +
                        4 * Collectives::workspace_elements(ranks, tokens);
    if (acts.sequence_ranks > 1)
      SequenceParallel::add_bytes(bytes, gpt, acts.dtype, ranks, micro, token_chunks);
  }

  // In the shapes below, s is the number of ranks that split a sequence: tp or 1.

  /// Where a split part writes this rank's summand of x (n,T/s,C): what this rank adds to the sum
  /// over ranks. It has shape (n,T,C), and is valid until f or g has summed it.
  Tensor summand(Tensor x) const { return sequence_ ? sequence_->summand().first(x.dim(0)) : x; }

  /// The input of a split part, (n,T,C), from x (n,T/s,C). It is valid until the next call.
  Tensor f_forward(const Ctx& ctx, Tensor x) {
    return sequence_ ? sequence_->gather_inp(ctx, x) : x;
  }
  /// Replaces summands of dx (n,T/s,C) by their sum over ranks.
  void f_backward(const Ctx& ctx, Tensor dx) { sum(ctx, dx); }

  /// Replaces summands of x (n,T/s,C) by their sum over ranks.
  void g_forward(const Ctx& ctx, Tensor x) { sum(ctx, x); }
  /// The gradient of every rank's summand (n,T,C), from dx (n,T/s,C). It is valid until the next
  /// call.
  Tensor g_backward(const Ctx& ctx, Tensor dx) {
    return sequence_ ? sequence_->gather_dproduct(ctx, dx) : dx;
  }

  /// The gradients of a norm that worked on (n,T/s,C).
  void norm_backward_weight(const Ctx& ctx, const Affine& grads, Tensor dout, Tensor inp,
                            const NormSaved& saved, Into into) {
    if (sequence_) return sequence_->norm_backward_weight(ctx, grads, dout, inp, saved, into);
    ladder::norm_backward_weight(ctx, grads, dout, inp, saved, into);
  }

  /// How many columns of the logits this rank has, without padding.
  int64_t own_vocab() const { return own_vocab_; }

  /// Turns tokens and targets, in place, into row numbers in this rank's part of the vocabulary.
  /// Those whose row another rank has become kElsewhere.
  void localize(const Batch& batch) const {
    localize(batch.tokens);
    localize(batch.targets);
  }
  void localize(Tensor ids) const {
    for (int32_t& id : std::span(ids.data<int32_t>(), static_cast<size_t>(ids.size())))
      if (id != kIgnore)
        id = id >= rows_.begin && id < rows_.end ? static_cast<int32_t>(id - rows_.begin)
                                                 : kElsewhere;
  }

  /// What a softmax needs of the columns of all ranks. logits (n,T,Vp/tp); targets (n,T), localized
  SoftmaxSums softmax(const Ctx& ctx, Tensor logits, Tensor targets) {
    if (comm_.size() == 1) return {};
    const int64_t n = logits.dim(0);
    const SoftmaxSums all{softmax_.max.first(n), softmax_.sum.first(n), softmax_.target.first(n)};
    head_max(ctx, all, logits, own_vocab());
    comm_.all_reduce(all.max, Combine::Max);
    head_sum(ctx, all, logits, targets, own_vocab());
    sums_.all_reduce(all.sum);
    comm_.all_reduce(all.target);  // one rank has it, the others -0: exact in any order
    return all;
  }

  /// Counts in the report what these ranks exchange.
  void show(Log& log) const { log.count(*group_); }
  /// Bytes of activations and their gradients that this rank sent in the last step.
  int64_t sent(const Log& log) const { return log.sent_in_step(*group_); }

 private:
  static Range own_rows(const ParamLayout& params) {
    const int64_t rows = div_exact(params.config().padded_vocab, params.tensor_rank().size);
    return {params.tensor_rank().rank * rows, (params.tensor_rank().rank + 1) * rows};
  }

  /// Elements of the largest sum. 0 with sequence parallelism, which has sums of its own.
  static int64_t largest_sum(const GptConfig& gpt, const ActivationPlan& acts, int64_t micro) {
    return acts.sequence_ranks > 1 ? 0 : micro * gpt.seq_len * gpt.channels;
  }

  void sum(const Ctx& ctx, Tensor x) {
    if (sequence_) return sequence_->reduce_scatter(ctx, x);
    const Span span(ctx, "all_reduce");
    activations_.all_reduce(x);
  }

  Comm& comm_;
  std::unique_ptr<Comm> group_;  ///< only for activations and their gradients
  Range rows_;                   ///< of the vocabulary, padding included
  int64_t own_vocab_;
  SoftmaxSums softmax_;
  Collectives activations_, sums_;
  std::optional<SequenceParallel> sequence_;
};

}  // namespace ladder
