// Where parameters lie, their initial values, their hash, and the bytes of activations.
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "common/error.h"
#include "common/model/activations.h"
#include "common/model/init.h"
#include "kernels/arena.h"

namespace ladder {
namespace {

GptConfig small() {
  GptConfig config = preset("tiny");
  config.layers = 3;
  config.channels = 40;
  config.padded_vocab = 300;  // 44 rows of padding
  return config;
}

struct Weights {
  GptConfig config;
  ParamLayout layout{config};
  Arena arena{};
  Tensor flat = arena.alloc(Mem::Param, "params", Dtype::F32, {layout.size()});

  float* data() const { return flat.data<float>(); }
  const ParamSpec& spec(const std::string& name) const { return layout.spec(name); }
};

TEST(ParamLayout, WhatAModelHasNotIsNull) {
  const Weights w{.config = preset("llama-nano")};
  const GptTensors gpt = w.layout.view(w.flat);
  const BlockTensors& block = gpt.blocks[3];
  for (const Tensor& none : {gpt.embed.wpe, gpt.norm.b, block.norm1.b, block.attn.qkv.b,
                             block.residual1_b, block.norm2.b, block.mlp.fc.b, block.residual2_b})
    EXPECT_FALSE(none);
  EXPECT_EQ(block.attn.qkv.w.shape, (Shape{256, 128}));  // 4 groups of 2 queries, key, value
  EXPECT_EQ(block.mlp.fc.w.shape, (Shape{768, 128}));
  EXPECT_EQ(block.mlp.proj_w.shape, (Shape{128, 384}));
  EXPECT_EQ(w.layout.specs(4)[3].name, "model.layers.3.post_attention_layernorm.weight");
}

TEST(ParamLayout, ViewsPointIntoTheBuffer) {
  const Weights w{.config = small()};
  const GptTensors gpt = w.layout.view(w.flat);
  const auto offset = [&](Tensor t) { return t.data<float>() - w.data(); };
  EXPECT_EQ(offset(gpt.blocks[1].mlp.proj_w), w.spec("transformer.h.1.mlp.c_proj.weight").offset);
  EXPECT_EQ(gpt.blocks[1].mlp.proj_w.shape, (Shape{40, 160}));
  EXPECT_EQ(offset(gpt.blocks[2].residual2_b), w.spec("transformer.h.2.mlp.c_proj.bias").offset);
  EXPECT_EQ(offset(gpt.head_w), w.spec("lm_head.weight").offset);
}

TEST(GptConfig, RefusesImpossibleSizes) {
  GptConfig config = small();
  config.heads = 3;
  EXPECT_THROW(config.check(), UserError);
  config = small();
  config.seq_len = config.positions + 1;
  EXPECT_THROW(config.check(), UserError);
  EXPECT_THROW(preset("giant"), UserError);
  config = preset("llama-nano");
  config.seq_len = 10 * config.positions;  // there is no table of them
  config.check();
  config.kv_heads = 3;
  EXPECT_THROW(config.check(), UserError);
  config.heads = config.kv_heads = 128;  // of one channel, which has no pair
  EXPECT_THROW(config.check(), UserError);
}

TEST(Init, HasTheMomentsOfGpt2) {
  Weights w{.config = preset("tiny")};
  init_params(Ctx{}, w.flat, w.layout, w.config, 1);
  for (const ParamSpec& spec : w.layout.specs()) {
    double mean = 0, square = 0;
    const auto n = static_cast<double>(spec.live());
    for (int64_t i = 0; i < spec.live(); ++i) {
      const double x = w.data()[spec.offset + i];
      mean += x / n;
      square += x * x / n;
    }
    double std = spec.is_matrix() ? 0.02 : 0;
    if (spec.role == Role::Projection) std = 0.02 / std::sqrt(2.0 * 4);
    EXPECT_NEAR(mean, spec.role == Role::Gain ? 1 : 0, 5 * std / std::sqrt(n)) << spec.name;
    if (spec.is_matrix()) {
      EXPECT_NEAR(std::sqrt(square), std, 5 * std / std::sqrt(2 * n)) << spec.name;
    }
  }
}

TEST(Init, DependsOnSeedNameAndIndexAlone) {
  Weights a{.config = small()}, b{.config = small()};
  b.config.layers = 2;  // another layout: block 1 lies at the same place, the head elsewhere
  Weights c{.config = b.config};
  init_params(Ctx{}, a.flat, a.layout, a.config, 1);
  init_params(Ctx{}, c.flat, c.layout, c.config, 1);
  const ParamSpec &x = a.spec("lm_head.weight"), &y = c.spec("lm_head.weight");
  ASSERT_NE(x.offset, y.offset);
  EXPECT_EQ(
      std::memcmp(a.data() + x.offset, c.data() + y.offset, 4 * static_cast<size_t>(x.live())), 0);
  init_params(Ctx{}, b.flat, b.layout, a.config, 2);
  EXPECT_NE(a.data()[x.offset], b.data()[x.offset]);
}

TEST(Init, AnyNumberOfThreadsGivesTheSameBits) {
  Weights one{.config = preset("tiny")}, many{.config = preset("tiny")};
  init_params(Ctx{}, one.flat, one.layout, one.config, 1);
  Ctx ctx;
  ctx.threads = 5;
  init_params(ctx, many.flat, many.layout, many.config, 1);
  EXPECT_EQ(std::memcmp(one.data(), many.data(), static_cast<size_t>(one.flat.bytes())), 0);
  EXPECT_EQ(param_hash(ctx, many.flat, many.layout), param_hash(Ctx{}, one.flat, one.layout));
}

TEST(Init, PaddingIsZero) {
  Weights w{.config = small()};
  init_params(Ctx{}, w.flat, w.layout, w.config, 1);
  const ParamSpec& head = w.spec("lm_head.weight");
  ASSERT_EQ(head.shape.size() - head.live(), 44 * 40);
  for (int64_t i = head.live(); i < head.shape.size(); ++i) EXPECT_EQ(w.data()[head.offset + i], 0);
}

TEST(ParamHash, SeesEveryBitButNotThePadding) {
  Weights w{.config = small()};
  init_params(Ctx{}, w.flat, w.layout, w.config, 1);
  const uint64_t hash = param_hash(Ctx{}, w.flat, w.layout);
  const ParamSpec& head = w.spec("lm_head.weight");
  w.data()[head.offset + head.live()] = 1;
  EXPECT_EQ(param_hash(Ctx{}, w.flat, w.layout), hash);

  float& weight = w.data()[w.spec("transformer.h.2.ln_2.bias").offset + 39];
  ASSERT_EQ(weight, 0);
  weight = -0.0f;  // equal as a number, not as bits
  EXPECT_NE(param_hash(Ctx{}, w.flat, w.layout), hash);
  weight = 0;
  std::swap(w.data()[head.offset], w.data()[head.offset + 1]);
  EXPECT_NE(param_hash(Ctx{}, w.flat, w.layout), hash);
}

// Ranks that hold parts of the weights add their sums. So what one element adds may not depend on
// any other.
TEST(ParamHash, IsASumOverElements) {
  Weights w{.config = small()};
  init_params(Ctx{}, w.flat, w.layout, w.config, 1);
  const uint64_t whole = param_hash(Ctx{}, w.flat, w.layout);
  float &a = w.data()[3], &b = w.data()[w.spec("lm_head.weight").offset];
  const float was = a;
  a = 1;
  const uint64_t with_a = param_hash(Ctx{}, w.flat, w.layout);
  b = 1;
  const uint64_t with_both = param_hash(Ctx{}, w.flat, w.layout);
  a = was;
  EXPECT_EQ(param_hash(Ctx{}, w.flat, w.layout) - whole, with_both - with_a);
}

void expect_bytes_of_formula(const GptConfig& config, int64_t batch,
                             const ActivationPlan& plan = {}) {
  Arena arena;
  alloc_activations(arena, config, batch, plan);
  alloc_act_grads(arena, config, batch, plan);
  MemoryBytes wanted;
  wanted[Mem::Activation] = activation_bytes(config, batch, plan);
  wanted[Mem::Workspace] = act_grad_bytes(config, batch, plan);
  EXPECT_EQ(arena.peak().bytes, wanted.bytes);
}

TEST(Activations, BytesFollowTheFormula) {
  for (const char* name : {"nano", "tiny", "llama-nano", "llama-tiny"})
    for (int64_t batch : {1, 5}) {
      SCOPED_TRACE(name);
      expect_bytes_of_formula(preset(name), batch);
    }
  GptConfig wide = preset("llama-tiny");
  wide.heads = 16;
  wide.kv_heads = 8;
  for (const GptConfig& config : {preset("nano"), wide})
    for (const int64_t tp : {1, 2, 4, 8})
      for (const int64_t sequence_ranks : {int64_t{1}, tp}) {
        SCOPED_TRACE(fmt::format("{}, tp {}", config.name, tp));
        expect_bytes_of_formula(config, 3, {.tp = tp, .sequence_ranks = sequence_ranks});
      }
}

// Written out here. For a token and a block, llama-tiny keeps: the stream twice, two norms, qkv
// with 4 + 2 + 2 heads of 32, att, gate and up, and their product; the rstd of each norm, and the
// lse of each head.
TEST(Activations, BytesOfLlamaWrittenOut) {
  const int64_t C = 128, F = 384, T = 64, L = 4, block = 4 * C + 256 + C + 3 * F + 2 + 4;
  const int64_t whole = L * block + C + (C + 1) + 256;  // the embedding; the last norm; logits
  EXPECT_EQ(activation_bytes(preset("llama-tiny"), 2), 4 * 2 * T * whole);
  // Product, stream, branch and norm; qkv, att, gate and up, what they make; a table of angles.
  EXPECT_EQ(act_grad_bytes(preset("llama-tiny"), 2),
            4 * 2 * T * (4 * C + 256 + C + 3 * F) + 4 * T * 32);
}

// Every combination that a plan can have, with numbers of layers that sets divide or do not divide.
TEST(Activations, BytesFollowTheFormulaOfEveryPlan) {
  GptConfig config = small();
  for (const int64_t layers : {1, 2, 3, 5, 7}) {
    config.norm = layers % 2 == 0 ? Norm::Rms : Norm::Layer;
    config.mlp = layers > 2 ? Mlp::SwiGlu : Mlp::Gelu;
    for (int64_t sets = 0; sets <= layers; ++sets)
      for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16})
        for (int bits = 0; bits < 32; ++bits) {
          config.layers = layers;
          const ActivationPlan plan{.dtype = dtype,
                                    .sets = sets,
                                    .own_norm = (bits & 1) != 0,
                                    .own_att = (bits & 2) != 0,
                                    .own_act = (bits & 4) != 0,
                                    .own_input = (bits & 8) != 0,
                                    .own_output = (bits & 16) != 0};
          SCOPED_TRACE(fmt::format("{} layers, {} sets, {}", layers, sets, bits));
          expect_bytes_of_formula(config, 3, plan);
        }
  }
}

TEST(Activations, WhatAPlanSharesIsOneBuffer) {
  GptConfig config = preset("nano");
  config.layers = 5;
  Arena arena;
  const auto blocks = [&](const ActivationPlan& plan) {
    return alloc_activations(arena, config, 1, plan).blocks;
  };
  const auto kept = blocks({}), runs = blocks({.sets = 2}), parts = blocks({.own_act = false});
  EXPECT_NE(kept[0].attn.qkv.ptr, kept[2].attn.qkv.ptr);
  EXPECT_EQ(runs[0].attn.qkv.ptr, runs[2].attn.qkv.ptr);
  EXPECT_NE(runs[0].attn.qkv.ptr, runs[1].attn.qkv.ptr);
  EXPECT_EQ(runs[0].out.ptr, runs[2].out.ptr);  // inside runs
  EXPECT_NE(runs[1].out.ptr, runs[3].out.ptr);  // between runs: kept
  EXPECT_EQ(parts[0].mlp.act.ptr, parts[4].mlp.act.ptr);
  EXPECT_NE(parts[0].mlp.fc.ptr, parts[4].mlp.fc.ptr);
  const auto inputs = blocks({.sets = 1, .own_input = false});
  EXPECT_EQ(inputs[0].out.ptr, inputs[2].out.ptr);
  EXPECT_NE(inputs[0].out.ptr, inputs[1].out.ptr);
  // Blocks 0 and 1, 2 and 3, 4: what a run reads is not where it writes.
  const auto ends = blocks({.sets = 2, .own_input = false, .own_output = false});
  EXPECT_NE(ends[1].out.ptr, ends[3].out.ptr);
  EXPECT_EQ(ends[1].out.ptr, ends[4].out.ptr);
  EXPECT_NE(ends[3].out.ptr, ends[4].out.ptr);
}

}  // namespace
}  // namespace ladder
