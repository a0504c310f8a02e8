#include "common/model/activations.h"

namespace ladder {
namespace {

struct Sizes {
  int64_t B, T, C, NH, Vp;
};

BlockActs alloc_block(Arena& arena, const Sizes& n, Dtype dtype, int64_t l) {
  const auto alloc = [&](const char* name, Shape shape) {
    return arena.alloc(Mem::Activation, fmt::format("h{}.{}", l, name), dtype, shape);
  };
  const auto [B, T, C, NH, Vp] = n;
  return {.stat1{alloc("mean1", {B, T}), alloc("rstd1", {B, T})},
          .norm1 = alloc("norm1", {B, T, C}),
          .attn{.qkv = alloc("qkv", {B, T, 3 * C}),
                .att = alloc("att", {B, T, C}),
                .lse = alloc("lse", {B, NH, T})},
          .mid = alloc("mid", {B, T, C}),
          .stat2{alloc("mean2", {B, T}), alloc("rstd2", {B, T})},
          .norm2 = alloc("norm2", {B, T, C}),
          .mlp{.fc = alloc("fc", {B, T, 4 * C}), .gelu = alloc("gelu", {B, T, 4 * C})},
          .out = alloc("out", {B, T, C})};
}

NormSaved first(const NormSaved& s, int64_t n) { return {s.mean.first(n), s.rstd.first(n)}; }

BlockActs first(const BlockActs& a, int64_t n) {
  return {.stat1 = first(a.stat1, n),
          .norm1 = a.norm1.first(n),
          .attn{a.attn.qkv.first(n), a.attn.att.first(n), a.attn.lse.first(n)},
          .mid = a.mid.first(n),
          .stat2 = first(a.stat2, n),
          .norm2 = a.norm2.first(n),
          .mlp{a.mlp.fc.first(n), a.mlp.gelu.first(n)},
          .out = a.out.first(n)};
}

}  // namespace

Activations Activations::first(int64_t count) const {
  Activations part{.embed = embed.first(count),
                   .blocks{},
                   .stat = ladder::first(stat, count),
                   .norm = norm.first(count),
                   .logits = logits.first(count),
                   .product = product.first(count)};
  for (const BlockActs& block : blocks) part.blocks.push_back(ladder::first(block, count));
  return part;
}

ActGrads ActGrads::first(int64_t count) const {
  return {.stream = stream.first(count),
          .branch = branch.first(count),
          .norm = norm.first(count),
          .attn{attn.dqkv.first(count), attn.datt.first(count)},
          .mlp{mlp.dfc.first(count)}};
}

Activations alloc_activations(Arena& arena, const GptConfig& config, int64_t batch, Dtype dtype) {
  const Sizes n{batch, config.seq_len, config.channels, config.heads, config.padded_vocab};
  const auto [B, T, C, NH, Vp] = n;
  const auto alloc = [&](const char* name, Shape shape) {
    return arena.alloc(Mem::Activation, name, dtype, shape);
  };
  Activations acts;
  acts.embed = alloc("embed", {B, T, C});
  for (int64_t l = 0; l < config.layers; ++l)
    acts.blocks.push_back(alloc_block(arena, n, dtype, l));
  acts.stat = {alloc("mean", {B, T}), alloc("rstd", {B, T})};
  acts.norm = alloc("norm", {B, T, C});
  acts.logits = alloc("logits", {B, T, Vp});
  acts.product = arena.alloc(Mem::Workspace, "product", dtype, {B, T, C});
  return acts;
}

ActGrads alloc_act_grads(Arena& arena, const GptConfig& config, int64_t batch, Dtype dtype) {
  const int64_t B = batch, T = config.seq_len, C = config.channels;
  const auto alloc = [&](const char* name, int64_t width) {
    return arena.alloc(Mem::Workspace, name, dtype, {B, T, width});
  };
  return {.stream = alloc("dstream", C),
          .branch = alloc("dbranch", C),
          .norm = alloc("dnorm", C),
          .attn{.dqkv = alloc("dqkv", 3 * C), .datt = alloc("datt", C)},
          .mlp{.dfc = alloc("dfc", 4 * C)}};
}

int64_t activation_bytes(const GptConfig& config, int64_t batch) {
  const int64_t C = config.channels, per_block = 16 * C + config.heads + 4;
  const int64_t per_token = config.layers * per_block + 2 * C + 2 + config.padded_vocab;
  return 4 * batch * config.seq_len * per_token;
}

int64_t act_grad_bytes(const GptConfig& config, int64_t batch) {
  return 4 * batch * config.seq_len * 12 * config.channels;
}

}  // namespace ladder
