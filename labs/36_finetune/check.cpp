// Chats as tokens with their masks; adapters of attention and MLP, forward and backward; merging.
#include "labs/check.h"

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "chapters/36_finetune/chat.h"
#include "chapters/36_finetune/lora.h"
#include "common/model/activations.h"
#include "labs/kernel_counts.h"

namespace ladder::lab {
namespace {

Tokenizer tokenizer_of(const std::vector<std::string>& special) {
  Tokenizer tokenizer;
  for (int byte = 0; byte < 256; ++byte) tokenizer.tokens.emplace_back(1, static_cast<char>(byte));
  for (const std::string& text : special) {
    const auto id = static_cast<uint32_t>(tokenizer.tokens.size());
    tokenizer.tokens.push_back(text);
    tokenizer.added[text] = {.id = id};
    tokenizer.end_of_text = id;
  }
  return tokenizer;
}

std::string mask_of(const ChatTokens& chat) {
  std::string mask;
  for (const bool learned : chat.learned) mask += learned ? '1' : '0';
  return mask;
}

void run_masks(Sheet& sheet, const Tokenizer* tokenizer, Template form) {
  const Random random(sheet.seed(), "texts");
  for (const Learn learn : {Learn::Answers, Learn::All})
    for (uint64_t i = 0; i < 4; ++i) {
      Speller speller(tokenizer, form);
      ChatTokens chat;
      if (i % 2 == 1) speller.add(chat, "system", "be", learn);
      for (uint64_t turn = 0; turn <= i / 2; ++turn)
        for (const char* role : {"user", "assistant"})
          speller.add(chat, role, std::string(1 + random.below(6, 10 * i + turn), 'a'), learn);
      const std::string row = fmt::format("{} {}", to_string(learn), i);
      sheet.text("mask/tokens: " + row, fmt::format("{}", fmt::join(chat.tokens, " ")));
      sheet.text("mask/learned: " + row, mask_of(chat));
    }
}

void run_cuts(Sheet& sheet) {
  const auto n = sheet.pick<size_t>("tokens", {6, 7, 9});
  for (const size_t first : {size_t{0}, size_t{1}, size_t{2}, n / 2, n - 1})
    for (size_t most = 1; most <= n + 2; ++most) {
      ChatTokens chat;
      for (size_t i = 0; i < n; ++i)
        chat.add(std::vector<int32_t>{static_cast<int32_t>(i)}, i == first);
      chat.cut(most);
      const std::string row = fmt::format("one learned at {}, {} left", first, most);
      sheet.text("cut/mask: " + row,
                 fmt::format("{} {}", fmt::join(chat.tokens, " "), mask_of(chat)));
      sheet.text("cut/target: " + row, chat.has_target() ? "yes" : "no");
    }
}

/// A block with adapters, and numbers for all that it reads.
struct Block {
  Sheet& sheet;
  GptConfig gpt;
  LoraOptions options;
  CountedKernels kernels;
  Arena arena;
  Ctx& ctx = kernels.ctx();
  ParamLayout whole{gpt}, layout{options.learned(gpt)};
  Tensor base = small("base", {whole.size()}), adapters = small("adapters", {layout.size()});
  Tensor grads = small("grads", {layout.size()});
  GptTensors w = whole.view(base), g = layout.view(grads);
  Activations a = alloc_activations(arena, gpt, 2);
  ActGrads d = alloc_act_grads(arena, gpt, 2);
  Lora lora{arena, options, gpt, 2, Dtype::F32};

  Block(Sheet& sheet_, const char* model, bool rslora)
      : sheet(sheet_), gpt(model_of(model)), options(options_of(sheet_, gpt, rslora)) {
    for (int64_t s = 0; s < layout.sections(); ++s)
      layout.put(w, s, layout.section_of(adapters, s));
    sheet.draw(a.blocks[0].norm1, "norm1");
    sheet.draw(a.blocks[0].norm2, "norm2");
    sheet.draw(d.stream, "stream");
  }

  static GptConfig model_of(const char* model) {
    GptConfig gpt = preset(model);
    gpt.layers = 1;
    gpt.vocab = 64;
    gpt.padded_vocab = 64;
    gpt.channels = 32;
    gpt.heads = 4;
    if (gpt.kv_heads > 0) gpt.kv_heads = 2;
    return gpt;
  }
  /// s is no power of two: then it matters where the factor is. An alpha of 0 is r.
  static LoraOptions options_of(const Sheet& sheet, const GptConfig& gpt, bool rslora) {
    const auto rank = sheet.pick<int64_t>("rank", {3, 5, 6});
    const bool not_given = rslora && gpt.kv_heads > 0;
    return {
        .rank = rank, .alpha = not_given ? 0 : static_cast<double>(rank) * 0.7, .rslora = rslora};
  }
  Tensor small(const char* name, Shape shape) {
    const Tensor x = sheet.drawn(arena, name, shape);
    ctx.kernels->scale(ctx, x, 0.25F);
    return x;
  }
  /// What a branch has written: its product, and after backward the gradients.
  void rows(const std::string& gate, const Adapter& first, const Adapter& second) {
    sheet.bits(gate + "/dx", d.branch);
    for (const auto& [name, one] : {std::pair{"first", first}, {"second", second}}) {
      sheet.bits(fmt::format("{}/dA of the {} layer", gate, name), one.a);
      sheet.bits(fmt::format("{}/dB of the {} layer", gate, name), one.b);
    }
  }
};

void run_attention(Sheet& sheet, Block& block, Into into) {
  const BlockActs& s = block.a.blocks[0];
  const BlockTensors& p = block.w.blocks[0];
  const BlockTensors& g = block.g.blocks[0];
  block.lora.attn_forward(block.ctx, block.a.product, s.attn, s.norm1, p);
  sheet.bits("adapter/product", block.a.product);
  block.lora.attn_backward(block.ctx, block.d.branch, g, block.d.attn, block.d.stream, s.norm1,
                           s.attn, p, into);
  block.rows("adapter", g.adapters.qkv, g.adapters.proj);
}

void run_mlp(Sheet& sheet, Block& block, Into into) {
  const BlockActs& s = block.a.blocks[0];
  const BlockTensors& p = block.w.blocks[0];
  const BlockTensors& g = block.g.blocks[0];
  block.kernels.count<&Kernels::matmul_backward_weight>();
  block.lora.mlp_forward(block.ctx, block.a.product, s.mlp, s.norm2, p);
  sheet.bits("mlp/product", block.a.product);
  block.lora.mlp_backward(block.ctx, block.d.branch, g, block.d.mlp, block.d.stream, s.norm2, s.mlp,
                          p, into);
  block.rows("mlp", g.adapters.fc, g.adapters.mlp_proj);
  sheet.count("work/gradients", CountedKernels::calls());
  sheet.without_idea("work/gradients", 6);  // those of both W, too
}

void run_stacks(Sheet& sheet, const Block& block) {
  for (const ParamSpec& spec : block.layout.specs())
    if (is_b(spec)) {
      std::string zeros;
      for_others(spec, block.layout.config(), [&](int64_t i) { zeros += fmt::format("{} ", i); });
      sheet.text(fmt::format("stacks/all: {}", spec.name), zeros);
    }
}

void run_merge(Sheet& sheet, const Block& block) {
  merge(block.base, block.whole, block.adapters, block.layout, block.options.scale());
  const BlockTensors& w = block.w.blocks[0];
  sheet.bits("merge/qkv", w.attn.qkv.w);
  sheet.bits("merge/proj", w.attn.proj_w);
  sheet.bits("merge/fc", w.mlp.fc.w);
  sheet.bits("merge/mlp_proj", w.mlp.proj_w);
}

}  // namespace

void cases(Sheet& sheet) {
  const Tokenizer plain = tokenizer_of({"<|endoftext|>"}),
                  chatml = tokenizer_of({"<|im_start|>", "<|im_end|>", "<|endoftext|>"});
  sheet.run("bytes", [&] { run_masks(sheet, nullptr, Template::Plain); });
  sheet.run("plain", [&] { run_masks(sheet, &plain, Template::Plain); });
  sheet.run("chatml", [&] { run_masks(sheet, &chatml, Template::ChatMl); });
  sheet.run("rows", [&] { run_cuts(sheet); });
  for (const char* model : {"nano", "llama-nano"})
    for (const bool rslora : {false, true}) {
      const Into into = rslora ? Into::Add : Into::Write;
      const std::string name = fmt::format("{}{}", model, rslora ? ", rsLoRA, added" : "");
      const auto block = [&] { return std::make_unique<Block>(sheet, model, rslora); };
      sheet.run(name + ", attention", [&] { run_attention(sheet, *block(), into); });
      sheet.run(name + ", MLP", [&] { run_mlp(sheet, *block(), into); });
      if (model == std::string("llama-nano"))
        sheet.run(name + ", stacks", [&] { run_stacks(sheet, *block()); });
      sheet.run(name + ", merged", [&] { run_merge(sheet, *block()); });
    }
}

}  // namespace ladder::lab
