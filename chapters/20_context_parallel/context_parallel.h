// What ranks that split sequences do in addition to chapter 09. There are three ways to do
// attention (gather.h, ulysses.h, ring.h). Everything else treats each token by itself, and needs
// to know only which tokens a rank has:
//
//   tokens, targets   A sequence is drawn whole, then each rank takes its own tokens. So the target
//                     of a run's last token is the first token of the next run, on whichever rank
//                     that run is
//   positions         those of the rank's own tokens in the whole sequence: rows of the table, or
//                     angles
//   sums over tokens  Gradients and losses are summed over own tokens, then over ranks. Ranks that
//                     split a sequence are neighbors. So a reduction over all ranks completes the
//                     sum of each sequence before it adds sequences
#pragma once

#include <memory>
#include <vector>

#include "chapters/20_context_parallel/gather.h"
#include "chapters/20_context_parallel/ring.h"
#include "chapters/20_context_parallel/ulysses.h"
#include "common/comm/elements.h"
#include "common/data/text.h"
#include "kernels/transfer.h"

namespace ladder {

class ContextParallel {
 public:
  /// @param ctx   its token_chunks is kTokenChunks / group.size(), this rank's share of the chunks
  ///              of a sum over tokens
  /// @param group ranks that split each sequence
  /// @param micro sequences of a micro-batch: 1, if there are several ranks
  ContextParallel(Arena& arena, const Ctx& ctx, Comm& group, const RunOptions& run, ContextWay way,
                  const ContextShape& shape, int64_t micro)
      : group_(group),
        shape_(shape),
        own_(shape.own),
        way_(way),
        losses_(group, ctx, Reduction::Halving, arena, Dtype::F32, micro),
        whole_(alloc_batch(arena, micro, own_.T)) {
    if (own_.cp == 1) return;
    switch (way) {
      case ContextWay::Gather:
        attention_ = std::make_unique<GatherAttention>(arena, ctx, group, shape);
        break;
      case ContextWay::Ulysses:
        attention_ = std::make_unique<UlyssesAttention>(arena, group, shape);
        break;
      case ContextWay::Ring:
        attention_ = std::make_unique<RingAttention>(arena, ctx, group, run, shape);
        break;
    }
  }

  /// Adds what the constructor allocates to a prediction.
  static void add_bytes(MemoryBytes& bytes, ContextWay way, const ContextShape& s, int64_t micro) {
    bytes[Mem::Activation] += 8 * micro * s.own.T;
    bytes[Mem::Comm] += 4 * Collectives::workspace_elements(static_cast<int>(s.own.cp), micro);
    if (s.own.cp == 1) return;
    switch (way) {
      case ContextWay::Gather: return GatherAttention::add_bytes(bytes, s);
      case ContextWay::Ulysses: return UlyssesAttention::add_bytes(bytes, s);
      case ContextWay::Ring: return RingAttention::add_bytes(bytes, s);
    }
  }

  /// Bytes that a rank sends for attention of one layer and one sequence.
  static ContextTraffic traffic(ContextWay way, const ContextShape& s) {
    if (s.own.cp == 1) return {};
    switch (way) {
      case ContextWay::Gather: return GatherAttention::traffic(s);
      case ContextWay::Ulysses: return UlyssesAttention::traffic(s);
      case ContextWay::Ring: return RingAttention::traffic(s);
    }
    return {};
  }
  /// The same in a step of `sequences`.
  /// @param again layers whose attention is computed again, in addition to `layers`
  static int64_t traffic(ContextWay way, const ContextShape& s, int64_t sequences, int64_t layers,
                         int64_t again) {
    const ContextTraffic each = traffic(way, s);
    return sequences * ((layers + again) * each.forward + layers * each.backward);
  }

  // ---- tokens -----------------------------------------------------------------------------------
  /// Memory for whole sequences of one micro-batch (MBS,T): they are drawn into this, then ranks
  /// take their tokens. The next micro-batch overwrites it.
  const Batch& whole() const { return whole_; }
  /// own (n,T/cp) = this rank's tokens and targets of the first n sequences of whole().
  void take(const Batch& own) const {
    const auto part = [&](const Tensor& to, const Tensor& from) {
      for (int64_t b = 0; b < to.dim(0); ++b)
        for (const int i : {0, 1}) {
          const Range rows = own_.rows(i), tokens = own_.tokens(i);
          copy_elements(flat(to.slice(b, 1)).slice(rows.begin, rows.size()),
                        flat(from.slice(b, 1)).slice(tokens.begin, tokens.size()));
        }
    };
    part(own.tokens, whole_.tokens);
    part(own.targets, whole_.targets);
  }

  // ---- parts that need positions or other tokens ------------------------------------------------
  /// Does what ladder::embed_forward() does for whole sequences. Each of the two runs reads its own
  /// rows of the position table.
  void embed_forward(const Ctx& ctx, Tensor out, Tensor tokens, const EmbedTensors& p) const {
    if (own_.cp == 1 || !p.wpe) return ladder::embed_forward(ctx, out, tokens, p);
    for (const int i : {0, 1}) {
      const Range rows = own_.rows(i);
      ladder::embed_forward(ctx, rows_of(out, rows),
                            flat(tokens).slice(rows.begin, rows.size()).view({1, rows.size()}),
                            {p.wte, positions(p, i)});
    }
  }
  /// Does what ladder::embed_backward_weight() does for whole sequences. There is one sequence, so
  /// the gradient of a position is its row of dout. Positions of other ranks get -0, which
  /// changes nothing in the sum over ranks (docs/same_bits.md).
  void embed_backward_weight(const Ctx& ctx, const EmbedTensors& g, Tensor dout, Tensor tokens,
                             Into into) const {
    if (own_.cp == 1 || !g.wpe) return ladder::embed_backward_weight(ctx, g, dout, tokens, into);
    CHECK(into == Into::Write, "gradients of positions are written");
    ladder::embed_backward_weight(ctx, {g.wte, {}}, dout, tokens, into);
    zero(ctx, g.wpe);
    ctx.kernels->scale(ctx, g.wpe, -1.0f);  // +0 times -1 is -0
    for (const int i : {0, 1})
      ctx.kernels->cast(ctx, positions(g, i),
                        rows_of(dout, own_.rows(i)).view(positions(g, i).shape));
  }
  void attend_forward(const Ctx& ctx, const AttnSaved& saved) const {
    attention_ ? attention_->forward(ctx, saved) : ladder::attend_forward(ctx, saved);
  }
  void attend_backward_input(const Ctx& ctx, const AttnGrads& d, const AttnSaved& saved) const {
    attention_ ? attention_->backward(ctx, d, saved) : ladder::attend_backward_input(ctx, d, saved);
  }
  /// Turns losses (n) of own tokens into losses of whole sequences.
  void sum_losses(Tensor losses) { losses_.all_reduce(losses); }

  // ---- report -----------------------------------------------------------------------------------
  /// FLOPs by which this rank's attention exceeds the mean of all ranks, in forward of one sequence
  /// and one layer: 0 in zig-zag order. HS: channels of a head
  int64_t flops_above_mean(int64_t HS) const {
    const int64_t mean = own_.T * (own_.T + 1) / 2 / own_.cp;
    const int64_t more = own_.pairs({0, own_.T}) - mean;
    return cost::attention_piece_forward(1, 0, 0, shape_.NH, 0, HS, more).flops;
  }
  void begin_step() {
    if (attention_) attention_->pairs = 0;
  }
  void show(Log& log) const {
    if (attention_) attention_->show(log);
  }
  /// Bytes that this rank sent for attention in the last step.
  int64_t sent(const Log& log) const { return attention_ ? attention_->sent(log) : 0; }
  /// Reports on the last step (0 if there was none): the bytes that this rank sent for attention;
  /// and for each rank the pairs of a query and a key over all heads, in forward and in backward.
  /// @param sequences of a step on this rank
  /// @param again     layers whose attention is computed again, in addition to `layers`
  void report(Log& log, int64_t sequences, int64_t layers, int64_t again) const {
    if (!attention_) return;
    if (log.steps() == 0) sequences = 0;
    const int64_t predicted_sent = traffic(way_, shape_, sequences, layers, again);
    std::vector<int64_t> predicted, measured(static_cast<size_t>(own_.cp));
    LocalTokens who = own_;
    for (who.rank = 0; who.rank < own_.cp; ++who.rank)
      predicted.push_back(sequences * (2 * layers + again) * shape_.NH * who.pairs({0, own_.T}));
    int64_t own = attention_->pairs;
    group_.all_gather({.ptr = measured.data(), .dtype = Dtype::I64, .shape = {own_.cp}},
                      {.ptr = &own, .dtype = Dtype::I64, .shape = {1}});
    log.extra()["context"] = {{"sent", {{"predicted", predicted_sent}, {"measured", sent(log)}}},
                              {"pairs", {{"predicted", predicted}, {"measured", measured}}}};
  }

 private:
  /// The rows of the position table (T,C) for this rank's early (0) or late (1) run.
  Tensor positions(const EmbedTensors& p, int i) const {
    return p.wpe.slice(own_.tokens(i).begin, own_.tokens(i).size());
  }

  Comm& group_;
  ContextShape shape_;
  LocalTokens own_;
  ContextWay way_;
  Collectives losses_;
  Batch whole_;
  std::unique_ptr<SharedAttention> attention_;  ///< null: the rank has whole sequences
};

}  // namespace ladder
