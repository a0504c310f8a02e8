// The decoder has the logits of training's forward, bit for bit, in whatever pieces texts come and
// whatever else is in a pass; and mistakes that people make are seen.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "chapters/21_moe/moe.h"
#include "chapters/31_generate/decode.h"
#include "common/model/activations.h"
#include "common/model/init.h"
#include "common/random.h"
#include "kernels/narrow.h"

namespace ladder {
namespace {

struct Case {
  std::string name;
  const Kernels& (*kernels)();
  int threads;
  GptConfig config;
  Dtype dtype = Dtype::F32;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

GptConfig config_of(const std::string& name, int64_t T) {
  GptConfig config = preset(name);
  config.layers = 2;
  config.channels = 32;
  config.heads = 4;
  config.seq_len = config.positions = T;
  config.hidden = config.mlp == Mlp::Gelu ? 0 : 16;
  if (config.has_experts()) config.experts = {.count = 6, .chosen = 3, .shared = 1};
  return config;
}

/// The mask dropped in prefill: each row of a piece sees all keys of the piece.
template <const Kernels& (*kMasked)()>
void without_mask(const Ctx& ctx, Tensor out, Tensor qkv, Tensor cache, int64_t heads,
                  const CachedPlace& at) {
  const int64_t m = qkv.dim(0);
  for (int64_t i = 0; i < m; ++i)
    kMasked().attention_cached(ctx, out.slice(i, 1), qkv.slice(i, 1), cache, heads,
                               {.T = at.T, .first = at.first + m - 1});
}

class Decoding : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kRows = 640;

  Decoding() {
    ctx.kernels = &GetParam().kernels();
    ctx.threads = GetParam().threads;
    ctx.scratch = arena.alloc(Mem::Workspace, "scratch", Dtype::U8,
                              {ctx.threads, ctx.kernels->scratch_bytes});
    const Tensor master = arena.alloc(Mem::Param, "master", Dtype::F32, {layout.size()});
    init_params(ctx, master, layout, 1);
    ctx.kernels->scale(ctx, master, 3.0f);  // attention that is not nearly even
    if (dtype != Dtype::F32) ctx.kernels->cast(ctx, params, master);
    if (dtype == Dtype::F32) std::memcpy(params.ptr, master.ptr, size_t(master.bytes()));
    const Random random(1, "text");
    for (uint64_t i = 0; i < uint64_t(config.seq_len); ++i)
      text.push_back(static_cast<int32_t>(random.below(uint64_t(config.vocab), i)));
  }

  /// Logits (T,Vp) of training: the calls of ch21_moe's forward and head.
  Tensor trained() {
    ActivationPlan plan;
    plan.dtype = dtype;
    const Activations a = alloc_activations(arena, config, 1, plan);
    const Tensor tokens = arena.alloc(Mem::Activation, "tokens", Dtype::I32, {1, T});
    std::ranges::copy(text, tokens.data<int32_t>());
    embed_forward(ctx, a.embed, tokens, w.embed);
    for (int64_t l = 0; l < config.layers; ++l) block(a, l);
    norm_forward(ctx, a.norm, a.stat, a.stream(config.layers), w.norm);
    head_forward(ctx, a.logits, a.norm, w.head_w);
    return a.logits.view({T, config.padded_vocab});
  }
  void block(const Activations& a, int64_t l) {
    const BlockTensors& p = w.blocks[size_t(l)];
    const BlockActs& s = a.blocks[size_t(l)];
    norm_forward(ctx, s.norm1, s.stat1, a.stream(l), p.norm1);
    attn_forward(ctx, a.product, s.attn, s.norm1, p.attn);
    residual_forward(ctx, s.mid, a.stream(l), a.product, p.residual1_b);
    norm_forward(ctx, s.norm2, s.stat2, s.mid, p.norm2);
    if (p.experts.router) {
      ActivationPlan plan;
      plan.dtype = dtype;
      Routers routers(arena, config, 1, 1, plan, 0);
      ExpertLayers layers(arena, ExpertSizes(config, 1), plan);
      const RouterActs r = routers.acts(size_t(l));
      const ExpertActs e = layers.acts(size_t(l), r.chosen);
      router_forward(ctx, r, s.norm2, p.experts.router, balance.bias(size_t(l)),
                     route_rule(config.experts));
      permute_forward(ctx, e, s.norm2, 0);
      experts_forward(ctx, e, p.experts);
      unpermute_forward(ctx, a.product, e);
      residual_forward(ctx, s.out, s.mid, a.product, {});
    }
    mlp_forward(ctx, a.product, s.mlp, s.norm2, p.mlp);
    residual_forward(ctx, s.out, p.experts.router ? s.out : s.mid, a.product, p.residual2_b);
  }

  /// Rows [first, first + m) of the text, at this position and place.
  TextRows rows(int64_t first, int64_t m, int64_t position = -1, int64_t place = 0) const {
    return {place,
            position < 0 ? first : position,
            std::span(text).subspan(size_t(first), size_t(m)),
            {0, m}};
  }
  std::string forward(const Decoder& decoder, const std::vector<TextRows>& pass) const {
    return bytes_of(decoder.forward(ctx, pass));
  }
  static std::string bytes_of(const Tensor& x) {
    return {static_cast<const char*>(x.ptr), size_t(x.bytes())};
  }
  Decoder decoder_with(const KvCache* in) {
    return Decoder(arena, config, w, balance, in, {kRows, kRows}, dtype);
  }
  /// The first n tokens of the text in pieces of m.
  std::string in_pieces(const Decoder& decoder, int64_t n, int64_t m, int64_t place = 0) const {
    std::string all;
    for (int64_t t = 0; t < n; t += m)
      all += forward(decoder, {rows(t, std::min(m, n - t), t, place)});
    return all;
  }

  GptConfig config = GetParam().config;
  Dtype dtype = GetParam().dtype;
  int64_t T = config.seq_len;
  Arena arena;
  Ctx ctx;
  ParamLayout layout{config};
  Tensor params = arena.alloc(Mem::Param, "params", dtype, {layout.size()});
  GptTensors w = layout.view(params);
  Balance balance{arena, config, {}};
  std::vector<int32_t> text;
  KvCache cache{arena, config, 3, T, dtype};
};

TEST_P(Decoding, PiecesHaveTheLogitsOfTraining) {
  const Decoder decoder = decoder_with(&cache);
  const std::string want = bytes_of(trained());
  for (const int64_t m : {int64_t{1}, int64_t{7}, int64_t{100}, T})
    EXPECT_TRUE(in_pieces(decoder, T, m) == want) << "pieces of " << m;
  // A text that is shorter than the window: a prefix. What an earlier text left lies behind it.
  const int64_t n = 3 * T / 5 + 1;
  EXPECT_TRUE(in_pieces(decoder, n, 5) == want.substr(0, want.size() / size_t(T) * size_t(n)));
  const Decoder whole(arena, config, w, balance, nullptr, {T, T}, dtype);
  EXPECT_TRUE(forward(whole, {rows(0, T)}) == want) << "without a cache";
}

/// Texts of unlike lengths, one of which begins when another is long, in one pass.
TEST_P(Decoding, NeighborsChangeNothing) {
  const Decoder decoder = decoder_with(&cache);
  const std::string want = bytes_of(trained());
  const size_t row = want.size() / size_t(T);
  in_pieces(decoder, 200, 200, 2);
  in_pieces(decoder, 30, 30, 0);
  const std::string got =
      forward(decoder, {rows(30, 1, 30, 0), rows(200, 3, 200, 2), rows(0, 50, 0, 1)});
  EXPECT_TRUE(got == want.substr(30 * row, row) + want.substr(200 * row, 3 * row) +
                         want.substr(0, 50 * row));
}

TEST_P(Decoding, MistakesAreSeen) {
  const Decoder decoder = decoder_with(&cache);
  const std::string want = bytes_of(trained());
  const size_t row = want.size() / size_t(T);
  const auto wrong = [&](const char* what, int64_t at, const std::string& got) {
    EXPECT_FALSE(got == want.substr(size_t(at) * row, got.size())) << what;
  };
  in_pieces(decoder, 100, 100);
  wrong("positions from 0 after a piece", 100, forward(decoder, {rows(100, 7, 0)}));
  in_pieces(decoder, 100, 100);
  forward(decoder, {rows(0, 1, 100)});  // proposed at 100, and refused
  wrong("refused tokens left in the cache", 101, forward(decoder, {rows(101, 3)}));
  in_pieces(decoder, 100, 100);
  forward(decoder, {rows(7, 40, 0)});  // another text in the same place
  wrong("a place reused too early", 100, forward(decoder, {rows(100, 1)}));
  Kernels unmasked = *ctx.kernels;
  unmasked.attention_cached =
      GetParam().kernels == ref_kernels ? without_mask<ref_kernels> : without_mask<cpu_kernels>;
  ctx.kernels = &unmasked;
  wrong("mask dropped in prefill", 0, in_pieces(decoder, 100, 100));
  EXPECT_TRUE(in_pieces(decoder, 100, 1) == want.substr(0, 100 * row)) << "token by token";
  ctx.kernels = &GetParam().kernels();
  GptConfig by_queries = config;
  by_queries.kv_heads = 0;
  const KvCache wide(arena, by_queries, 1, T, dtype);
  if (config.groups() != config.heads) {
    EXPECT_THROW(forward(decoder_with(&wide), {rows(0, 1)}), CheckError)
        << "cache indexed by query heads";
  }
}

std::vector<Case> cases() {
  const GptConfig gpt = config_of("tiny", 256), llama = config_of("llama-tiny", 512),
                  moe = config_of("moe-tiny", 256);
  return {{"cpu1_gpt", cpu_kernels, 1, gpt},
          {"cpu3_gpt", cpu_kernels, 3, gpt},
          {"cpu1_llama", cpu_kernels, 1, llama},
          {"cpu2_llama", cpu_kernels, 2, llama},
          {"cpu1_moe", cpu_kernels, 1, moe},
          {"cpu3_moe", cpu_kernels, 3, moe},
          {"cpu2_llama_bf16", cpu_kernels, 2, llama, Dtype::BF16},
          {"cpu1_moe_bf16", cpu_kernels, 1, moe, Dtype::BF16},
          {"ref_gpt", ref_kernels, 1, gpt},
          {"ref_moe", ref_kernels, 1, moe}};
}
INSTANTIATE_TEST_SUITE_P(Models, Decoding, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace ladder
