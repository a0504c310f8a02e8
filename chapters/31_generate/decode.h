// The decoder: the loop over layers with a cache. (Elsewhere that loop stands in main.cpp. This one
// is a header because chapters 35 to 37 need it, too, and a main.cpp cannot be included.)
//
// A pass takes some tokens of each of several texts: the first tokens of a prompt (prefill), the
// token that was drawn last (decode), or that token and those which a draft proposes (speculation).
// To the decoder these are one thing: rows. Products, norms and activation functions take all rows
// together, since each row is computed alone. Only three steps know which text a row belongs to:
// positions, the cache, and attention.
//
// The bits are those of training's forward over the whole window. Key chunks come from the window's
// length T, whatever a text has so far; a chunk that it has not reached is an absent leaf.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "chapters/21_moe/balance.h"
#include "chapters/21_moe/experts.h"
#include "chapters/21_moe/moe.h"
#include "chapters/31_generate/cache.h"
#include "common/model/config.h"
#include "common/model/parts.h"
#include "common/model/rope.h"
#include "kernels/arena.h"
#include "kernels/tensor.h"

namespace ladder {

/// Neighboring tokens of one text: rows of a pass.
struct TextRows {
  int64_t place;  ///< in the cache
  int64_t first;  ///< the position of the first of them
  std::span<const int32_t> tokens;
  Range wanted;  ///< which of these rows need logits
};

/// How large a pass can be.
struct PassSize {
  int64_t rows, wanted;
  /// Pads each product to `rows` rows (--fixed-rows); the padding is never read. On a GPU a library
  /// chooses the order of a sum by the product's shape. So a row has the same bits in every pass
  /// only if all passes have one shape.
  bool fixed = false;
};

/// The memory of a block, which the next block overwrites. To common/model/parts.h the R rows are
/// one sequence.
struct PassActs {
  Tensor tokens;                 ///< (1,R) I32
  Tensor stream, norm, product;  ///< (1,R,C)
  NormSaved stat;                ///< (1,R)
  Tensor qkv, att;               ///< (1,R,(NH+2*NKV)*HS), (1,R,C)
  MlpSaved mlp;                  ///< (1,R,F), (1,R,2F) with SwiGLU
};

class Decoder {
 public:
  /// @param config with the window as seq_len
  /// @param cache  null: each pass has the whole window of one text, as training has
  Decoder(Arena& arena, const GptConfig& config, const GptTensors& weights, const Balance& balance,
          const KvCache* cache, PassSize size, Dtype dtype)
      : config_(config), w_(weights), balance_(&balance), cache_(cache), size_(size) {
    const int64_t C = config.channels, act = config.inner();
    const auto alloc = [&](const char* name, int64_t columns) {
      return arena.alloc(Mem::Activation, name, dtype, {1, size.rows, columns});
    };
    all_.tokens = arena.shared(Mem::Activation, "tokens", Dtype::I32, {1, size.rows});
    all_.stream = alloc("stream", C);
    all_.norm = alloc("norm", C);
    all_.product = alloc("product", C);
    all_.stat.rstd = arena.alloc(Mem::Activation, "rstd", wide(dtype), {1, size.rows});
    if (config.norm == Norm::Layer)
      all_.stat.mean = arena.alloc(Mem::Activation, "mean", wide(dtype), {1, size.rows});
    all_.qkv = alloc("qkv", config.qkv_rows());
    all_.att = alloc("att", C);
    if (act > 0) all_.mlp = {.fc = alloc("fc", config.fc_rows()), .act = alloc("act", act)};
    last_ = arena.alloc(Mem::Activation, "last", dtype, {1, size.wanted, C});
    logits_ = arena.alloc(Mem::Activation, "logits", dtype, {1, size.wanted, config.padded_vocab});
    if (!cache)
      lse_ = arena.alloc(Mem::Activation, "lse", wide(dtype), {1, config.heads, size.rows});
    if (config.position == Position::Rope) {
      angles_ =
          arena.alloc(Mem::Workspace, "angles", Dtype::F32, {config.seq_len, config.head_size()});
      fill_angles(arena, angles_, config.rope);
    }
    if (!config.has_experts()) return;
    routers_.emplace(arena, as_sequence(), 1, 1, plan(dtype), /*capacity=*/0);
    experts_.emplace(arena, ExpertSizes(as_sequence(), 1), plan(dtype));
  }

  /// Bytes that the constructor takes, without the cache.
  static void add_bytes(MemoryBytes& bytes, const GptConfig& config, PassSize size, Dtype dtype,
                        bool cached) {
    const int64_t C = config.channels, R = size.rows, real = size_of(wide(dtype));
    const int64_t stats = config.norm == Norm::Layer ? 2 : 1;
    const GptConfig sequence = with_rows(config, R);
    const ActivationPlan one = plan(dtype);
    bytes[Mem::Activation] +=
        size_of(dtype) * (R * (4 * C + config.qkv_rows() + config.fc_rows() + config.inner()) +
                          size.wanted * (C + config.padded_vocab)) +
        real * R * (stats + (cached ? 0 : config.heads)) + 4 * R +
        Routers::activation_bytes(sequence, 1, 1, one) +
        ExpertLayers::activation_bytes(ExpertSizes(sequence, 1), one);
    if (config.position == Position::Rope)
      bytes[Mem::Workspace] += 4 * config.seq_len * config.head_size();
    bytes[Mem::Workspace] += Routers::workspace_bytes(sequence, 1, one) +
                             ExpertLayers::workspace_bytes(ExpertSizes(sequence, 1), one);
  }

  const GptConfig& config() const { return config_; }
  const PassSize& size() const { return size_; }

  /// One pass. Writes keys and values of its rows into the cache.
  /// @return logits (W,Vp) of the rows that are wanted, text after text
  Tensor forward(const Ctx& ctx, std::span<const TextRows> texts) const {
    const PassActs a = take(texts);
    embed(ctx, a, texts);
    for (int64_t l = 0; l < config_.layers; ++l) block(ctx, a, texts, l);
    norm_forward(ctx, a.norm, a.stat, a.stream, w_.norm);
    return head(ctx, a, texts);
  }

 private:
  /// One set of memory serves all blocks.
  static ActivationPlan plan(Dtype dtype) { return {.dtype = dtype, .sets = 1}; }
  /// The model with R rows as its sequence, for the memory of experts.
  static GptConfig with_rows(GptConfig config, int64_t rows) {
    config.seq_len = rows;
    return config;
  }
  GptConfig as_sequence() const { return with_rows(config_, size_.rows); }

  /// The first R rows of x (1,rows,N).
  static Tensor rows_of(const Tensor& x, int64_t R) {
    return x ? x.view({x.dim(1), x.dim(2)}).first(R).view({1, R, x.dim(2)}) : x;
  }
  static Tensor rows_of_column(const Tensor& x, int64_t R) {
    return x ? x.view({x.dim(1)}).first(R).view({1, R}) : x;
  }
  /// Rows [first, first + m) of x (1,R,N), as a matrix.
  static Tensor part_of(const Tensor& x, int64_t first, int64_t m) {
    return x.view({x.dim(1), x.dim(2)}).slice(first, m);
  }

  /// The memory of a pass, with its tokens.
  PassActs take(std::span<const TextRows> texts) const {
    int64_t R = 0, wanted = 0;
    for (const TextRows& text : texts) {
      R += std::ssize(text.tokens);
      wanted += text.wanted.size();
    }
    CHECK(R > 0 && R <= size_.rows && wanted <= size_.wanted, "a pass of {} rows, {} wanted", R,
          wanted);
    if (size_.fixed) R = size_.rows;
    PassActs a{.tokens = rows_of_column(all_.tokens, R),
               .stream = rows_of(all_.stream, R),
               .norm = rows_of(all_.norm, R),
               .product = rows_of(all_.product, R),
               .stat = {rows_of_column(all_.stat.mean, R), rows_of_column(all_.stat.rstd, R)},
               .qkv = rows_of(all_.qkv, R),
               .att = rows_of(all_.att, R),
               .mlp = {rows_of(all_.mlp.fc, R), rows_of(all_.mlp.act, R)}};
    int32_t* to = a.tokens.data<int32_t>();
    for (const TextRows& text : texts) to = std::ranges::copy(text.tokens, to).out;
    return a;
  }

  /// Calls f(text, row, m) for each text, whose m rows are the pass's rows from `row` on.
  template <class F>
  static void for_texts(std::span<const TextRows> texts, F&& f) {
    int64_t row = 0;
    for (const TextRows& text : texts) {
      const int64_t m = std::ssize(text.tokens);
      f(text, row, m);
      row += m;
    }
  }

  void embed(const Ctx& ctx, const PassActs& a, std::span<const TextRows> texts) const {
    for_texts(texts, [&](const TextRows& text, int64_t row, int64_t m) {
      EmbedTensors at = w_.embed;
      if (at.wpe) at.wpe = at.wpe.slice(text.first, at.wpe.dim(0) - text.first);
      embed_forward(ctx, part_of(a.stream, row, m).view({1, m, config_.channels}),
                    a.tokens.view({a.tokens.dim(1)}).slice(row, m).view({1, m}), at);
    });
  }

  void block(const Ctx& ctx, const PassActs& a, std::span<const TextRows> texts, int64_t l) const {
    const BlockTensors& p = w_.blocks[static_cast<size_t>(l)];
    norm_forward(ctx, a.norm, a.stat, a.stream, p.norm1);
    AttnSaved attn;  // without angles: attend() rotates each text from its own position
    attn.qkv = a.qkv;
    attn.att = a.att;
    qkv_forward(ctx, attn, a.norm, p.attn);
    for_texts(texts, [&](const TextRows& text, int64_t row, int64_t m) {
      attend(ctx, text, part_of(a.qkv, row, m), part_of(a.att, row, m), l);
    });
    proj_forward(ctx, a.product, attn, p.attn);
    residual_forward(ctx, a.stream, a.stream, a.product, p.residual1_b);

    norm_forward(ctx, a.norm, a.stat, a.stream, p.norm2);
    if (p.experts.router) {
      experts(ctx, a, p.experts, l);
      residual_forward(ctx, a.stream, a.stream, a.product, {});
    }
    if (!p.mlp.proj_w) return;
    mlp_forward(ctx, a.product, a.mlp, a.norm, p.mlp);
    residual_forward(ctx, a.stream, a.stream, a.product, p.residual2_b);
  }

  /// att (m,C) of one text, from its qkv (m,(NH+2*NKV)*HS).
  void attend(const Ctx& ctx, const TextRows& text, Tensor qkv, Tensor att, int64_t l) const {
    const Span span(ctx, "attend");
    const int64_t m = qkv.dim(0), NH = config_.heads;
    const Tensor sequence = qkv.view({1, m, qkv.dim(1)});
    if (angles_) ctx.kernels->rope(ctx, sequence, angles_.slice(text.first, m), NH, false);
    if (!cache_)
      return ctx.kernels->attention_forward(ctx, att.view({1, m, att.dim(1)}), lse_, sequence);
    cache_->append(ctx, text.place, l, text.first, qkv);
    ctx.kernels->attention_cached(ctx, att, qkv, cache_->rows(text.place, l), NH,
                                  {.T = config_.seq_len, .first = text.first});
  }

  /// product = what the experts of block l make of a.norm: as in chapter 21, without capacity.
  void experts(const Ctx& ctx, const PassActs& a, const ExpertTensors& p, int64_t l) const {
    const int64_t R = a.norm.dim(1), k = config_.experts.chosen;
    const auto block = static_cast<size_t>(l);
    RouterActs r = routers_->acts(block);
    for (Tensor* x : {&r.chosen.expert, &r.chosen.weight, &r.logits, &r.scores, &r.wide_tokens})
      *x = rows_of(*x, R);
    ExpertActs s = experts_->acts(block, r.chosen);
    s.rows.row = rows_of(s.rows.row, R);
    for (Tensor* x : {&s.rows.from, &s.inp, &s.fc, &s.act, &s.out}) *x = x->first(R * k);
    router_forward(ctx, r, a.norm, p.router, balance_->bias(block), route_rule(config_.experts));
    permute_forward(ctx, s, a.norm, /*capacity=*/0);
    experts_forward(ctx, s, p);
    unpermute_forward(ctx, a.product, s);
  }

  /// The head's product, of the wanted rows alone.
  Tensor head(const Ctx& ctx, const PassActs& a, std::span<const TextRows> texts) const {
    const int64_t C = config_.channels;
    int64_t W = 0;
    for_texts(texts, [&](const TextRows& text, int64_t row, int64_t) {
      const int64_t n = text.wanted.size();
      if (n == 0) return;
      ctx.kernels->copy_columns(ctx, part_of(last_, W, n).view({n, 1, C}), 0,
                                part_of(a.norm, row + text.wanted.begin, n).view({n, 1, C}), 0, C);
      W += n;
    });
    if (W == 0) return {};
    const int64_t all = size_.fixed ? size_.wanted : W;
    const Tensor logits = rows_of(logits_, all);
    head_forward(ctx, logits, rows_of(last_, all), w_.head_w);
    return logits.view({all, config_.padded_vocab}).first(W);
  }

  GptConfig config_;
  GptTensors w_;
  const Balance* balance_;
  const KvCache* cache_;
  PassSize size_;
  PassActs all_;
  Tensor last_, logits_;  ///< (1,W,C), (1,W,Vp)
  Tensor lse_;            ///< (1,NH,T), only without a cache
  Tensor angles_;         ///< (T,HS)
  std::optional<Routers> routers_;
  std::optional<ExpertLayers> experts_;
};

}  // namespace ladder
