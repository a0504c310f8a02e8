#include "common/model/activations.h"

#include "kernels/check.h"
#include "kernels/narrow.h"

namespace ladder {

LocalWidths::LocalWidths(const GptConfig& config, int64_t tp)
    : qkv(div_exact(config.qkv_rows(), tp)),
      att(div_exact(config.channels, tp)),
      fc(div_exact(config.fc_rows(), tp)),
      act(div_exact(config.inner(), tp)),
      dact(config.mlp == Mlp::SwiGlu ? act : 0) {}

MlpGrads mlp_grads(const GptConfig& config, Tensor dfc, Tensor dact) {
  return {.dfc = dfc, .dact = config.mlp == Mlp::SwiGlu ? dact : dfc};
}

namespace {

/// Allocates the activations of blocks. They share memory as the plan says.
class BlockAllocator {
 public:
  BlockAllocator(Arena& arena, const GptConfig& config, int64_t batch, const ActivationPlan& plan)
      : arena_(arena),
        config_(config),
        B_(batch),
        T_(config.seq_len),
        own_T_(plan.local_tokens(T_)),
        plan_(plan) {
    shared_.resize(static_cast<size_t>(plan.set_count(config.layers)));
    streams_.resize(2);
    next_slot();
    if (config.position != Position::Rope) return;
    angles_ = arena.alloc(Mem::Workspace, "angles", Dtype::F32, {T_, config.head_size()});
    fill_angles(arena, angles_, config.rope);
  }

  /// The following blocks belong to the next micro-batch.
  void next_slot() { own_.assign(shared_.size(), {}); }

  /// The input of block l. l = L: what the last norm or the next stage reads.
  Tensor stream(int64_t l) {
    const int64_t L = config_.layers, sets = plan_.set_count(L), C = config_.channels;
    // Inside a segment of `sets` blocks, the stream belongs to the set. Between segments it is
    // kept.
    if (l < L && l % sets != 0) return once(set(l - 1).out, "out", {own_T_, C});
    const bool kept = l < L ? plan_.own_input : plan_.own_output;
    if (kept) return alloc(fmt::format("stream{}", l), {own_T_, C}, plan_.dtype);
    return once(streams_[static_cast<size_t>(ceil_div(l, sets) % 2)], "stream", {own_T_, C});
  }

  /// All activations of block l; its output is stream(l + 1).
  BlockActs block(int64_t l, Tensor out) {
    BlockActs& own = set(l);
    BlockActs& norm = plan_.own_norm ? own : shared_[0];
    BlockActs& att = plan_.own_att ? own : shared_[0];
    BlockActs& act = plan_.own_act ? own : shared_[0];
    const int64_t C = config_.channels, NH = config_.heads / plan_.tp;
    const LocalWidths own_widths(config_, plan_.tp);
    return {.stat1 = stat(own.stat1),
            .norm1 = once(norm.norm1, "norm1", {own_T_, C}),
            .attn{.qkv = once(own.attn.qkv, "qkv", {T_, own_widths.qkv}),
                  .att = once(att.attn.att, "att", {T_, own_widths.att}),
                  .lse = once_wide(att.attn.lse, "lse", {B_, NH, T_}),
                  .angles = angles_},
            .mid = once(own.mid, "mid", {own_T_, C}),
            .stat2 = stat(own.stat2),
            .norm2 = once(norm.norm2, "norm2", {own_T_, C}),
            .mlp{.fc = once(own.mlp.fc, "fc", {T_, own_widths.fc}),
                 .act = once(act.mlp.act, "act", {T_, own_widths.act})},
            .out = out};
  }

  /// (B, tokens, width)
  Tensor alloc(std::string name, Shape sequence, Dtype dtype) {
    return arena_.alloc(Mem::Activation, std::move(name), dtype,
                        {B_, sequence.dims[0], sequence.dims[1]});
  }
  NormSaved stat(NormSaved& saved) {
    if (config_.norm == Norm::Layer) once_wide(saved.mean, "mean", {B_, own_T_});
    once_wide(saved.rstd, "rstd", {B_, own_T_});
    return saved;
  }

 private:
  /// Allocates `kept` at the first call, then returns it. A tensor of width 0 stays null.
  Tensor once(Tensor& kept, const char* name, Shape sequence) {
    if (kept.shape.rank == 0 && sequence.dims[1] > 0) kept = alloc(name, sequence, plan_.dtype);
    return kept;
  }
  Tensor once_wide(Tensor& kept, const char* name, Shape shape) {
    if (kept.shape.rank == 0) kept = arena_.alloc(Mem::Activation, name, wide(plan_.dtype), shape);
    return kept;
  }

  /// What block l keeps: while its micro-batch is in flight, or until the next micro-batch.
  BlockActs& set(int64_t l) {
    std::vector<BlockActs>& sets = plan_.own_sets ? own_ : shared_;
    return sets[static_cast<size_t>(l) % sets.size()];
  }

  Arena& arena_;
  const GptConfig& config_;
  int64_t B_, T_, own_T_;
  const ActivationPlan& plan_;
  std::vector<BlockActs> own_, shared_;  ///< of this micro-batch; of all micro-batches
  std::vector<Tensor> streams_;
  Tensor angles_;  ///< (T,HS) of rotary positions, one for all blocks
};

/// x.first(n), for a tensor that the program may lack.
Tensor first(const Tensor& x, int64_t n) { return x.shape.rank == 0 ? x : x.first(n); }

NormSaved first(const NormSaved& s, int64_t n) { return {first(s.mean, n), first(s.rstd, n)}; }

BlockActs first(const BlockActs& a, int64_t n) {
  return {.stat1 = first(a.stat1, n),
          .norm1 = a.norm1.first(n),
          .attn{a.attn.qkv.first(n), a.attn.att.first(n), a.attn.lse.first(n), a.attn.angles},
          .mid = a.mid.first(n),
          .stat2 = first(a.stat2, n),
          .norm2 = a.norm2.first(n),
          .mlp{first(a.mlp.fc, n), first(a.mlp.act, n)},
          .out = a.out.first(n)};
}

}  // namespace

Activations Activations::first(int64_t count) const {
  Activations part{.embed = embed.first(count),
                   .blocks{},
                   .stat = ladder::first(stat, count),
                   .norm = ladder::first(norm, count),
                   .logits = logits ? logits.first(std::min(count, logits.dim(0))) : Tensor{},
                   .product = product.first(count)};
  for (const BlockActs& block : blocks) part.blocks.push_back(ladder::first(block, count));
  return part;
}

ActGrads ActGrads::first(int64_t count) const {
  return {.stream = stream.first(count),
          .branch = branch.first(count),
          .norm = norm.first(count),
          .attn{attn.dqkv.first(count), attn.datt.first(count)},
          .mlp = mlp.first(count)};
}

std::vector<Activations> alloc_slots(Arena& arena, const GptConfig& config, int64_t batch,
                                     const ActivationPlan& plan) {
  BlockAllocator blocks(arena, config, batch, plan);
  const int64_t T = config.seq_len, local_T = plan.local_tokens(T), C = config.channels;
  Tensor logits;
  if (plan.head)
    logits = arena.alloc(Mem::Activation, "logits", plan.dtype,
                         {plan.logits_of(batch), T, config.padded_vocab / plan.tp});
  const Tensor product = arena.alloc(Mem::Workspace, "product", plan.dtype, {batch, local_T, C});
  std::vector<Activations> slots;
  for (int64_t slot = 0; slot < plan.slots; ++slot, blocks.next_slot()) {
    Activations acts{.embed = blocks.stream(0),
                     .blocks{},
                     .stat{},
                     .norm{},
                     .logits = logits,
                     .product = product};
    for (int64_t l = 0; l < config.layers; ++l)
      acts.blocks.push_back(blocks.block(l, blocks.stream(l + 1)));
    if (plan.head) {
      acts.stat = blocks.stat(acts.stat);
      acts.norm = blocks.alloc("norm", {local_T, C}, plan.dtype);
    }
    slots.push_back(acts);
  }
  return slots;
}

Activations alloc_activations(Arena& arena, const GptConfig& config, int64_t batch,
                              const ActivationPlan& plan) {
  CHECK(plan.slots == 1, "{} slots", plan.slots);
  return alloc_slots(arena, config, batch, plan).front();
}

ActGrads alloc_act_grads(Arena& arena, const GptConfig& config, int64_t batch,
                         const ActivationPlan& plan) {
  const int64_t T = config.seq_len, C = config.channels;
  const LocalWidths own(config, plan.tp);
  const auto alloc = [&](const char* name, int64_t tokens, int64_t width) {
    return width == 0 ? Tensor{}
                      : arena.alloc(Mem::Workspace, name, plan.dtype, {batch, tokens, width});
  };
  return {.stream = alloc("dstream", plan.local_tokens(T), C),
          .branch = alloc("dbranch", plan.local_tokens(T), C),
          .norm = alloc("dnorm", plan.local_tokens(T), C),
          .attn{.dqkv = alloc("dqkv", T, own.qkv), .datt = alloc("datt", T, own.att)},
          .mlp = mlp_grads(config, alloc("dfc", T, own.fc), alloc("dact", T, own.dact))};
}

int64_t activation_bytes(const GptConfig& config, int64_t batch, const ActivationPlan& plan) {
  const int64_t L = config.layers, C = config.channels, NH = config.heads / plan.tp;
  const LocalWidths own(config, plan.tp);
  const int64_t sets = plan.set_count(L), slots = plan.slots, heads = plan.head ? slots : 0;
  const int64_t all_sets = plan.own_sets ? slots * sets : sets;
  const auto copies = [&](bool is_own) { return is_own ? all_sets : 1; };
  // Streams: the inputs of segments and the last output. Inside a segment they belong to a set.
  const int64_t segments = ceil_div(L, sets);
  const int64_t kept = (plan.own_input ? segments : 0) + (plan.own_output ? 1 : 0);
  const int64_t turns = (plan.own_input ? 0 : segments) + (plan.own_output ? 0 : 1);
  const int64_t streams = slots * kept + std::min<int64_t>(turns, 2) + all_sets / sets * (sets - 1);
  // Numbers per token, between the parts that ranks split and inside of them.
  const int64_t between = (streams + all_sets + copies(plan.own_norm) * 2 + heads) * C;
  const int64_t inside = all_sets * (own.qkv + own.fc) + copies(plan.own_att) * own.att +
                         copies(plan.own_act) * own.act;
  const int64_t T = config.seq_len, local_T = plan.local_tokens(T);
  const int64_t narrow = local_T * between + T * inside;
  const int64_t each = config.norm == Norm::Layer ? 2 : 1;  // statistics of a norm
  const int64_t statistics =
      local_T * each * (all_sets * 2 + heads) + T * copies(plan.own_att) * NH;
  const int64_t logits = plan.head ? plan.logits_of(batch) * T * config.padded_vocab / plan.tp : 0;
  return size_of(plan.dtype) * (batch * narrow + logits) +
         size_of(wide(plan.dtype)) * batch * statistics;
}

int64_t angle_bytes(const GptConfig& config) {
  return config.position == Position::Rope ? 4 * config.seq_len * config.head_size() : 0;
}

int64_t act_grad_bytes(const GptConfig& config, int64_t batch, const ActivationPlan& plan) {
  const int64_t T = config.seq_len, between = plan.local_tokens(T) * 4 * config.channels;
  const LocalWidths own(config, plan.tp);
  const int64_t inside = T * (own.qkv + own.att + own.fc + own.dact);
  return size_of(plan.dtype) * batch * (between + inside) + angle_bytes(config);
}

}  // namespace ladder
