// --chat: a conversation, by the decoder of chapter 31. The template spells it: each line that is
// typed is a message of the user, behind which the model writes the assistant's. It stops at the
// token that ends a message, if it has learned to.
//
// The decoder knows no adapters, so an adapter is added to the weights first, as --save-merged
// does. An answer is the one that chapter 31 gives to the same tokens. Draws depend on the number
// of a line: that of --prompts there, that of what was typed here.
#pragma once

#include <cstdio>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <unistd.h>

#include "chapters/31_generate/batch.h"
#include "chapters/31_generate/draw.h"
#include "chapters/31_generate/open.h"
#include "chapters/36_finetune/base.h"
#include "chapters/36_finetune/chat.h"
#include "chapters/36_finetune/lora.h"
#include "common/comm/failure.h"
#include "common/run/backend.h"
#include "common/run/text_codec.h"

namespace ladder {

/// The weights of `base`, to which the adapter in `load` is added; without adapters those of `load`
/// if it is given. @throws UserError
inline void load_merged(const Ctx& ctx, OpenModel& model, const std::string& base,
                        const std::string& load, const LoraOptions& lora) {
  model.load(ctx, lora.on() || load.empty() ? base : load);
  if (!lora.on()) return;
  const ParamLayout layout(lora.learned(model.config));
  Arena own;
  const Tensor adapters = own.alloc(Mem::Staging, "adapters", Dtype::F32, {layout.size()});
  load_parameters(ctx, load, {.layout = layout, .params = adapters, .optim = {}});
  const HostCopy whole = HostCopy::of(ctx, model.weights.master);
  merge(whole.tensor(), model.layout, adapters, layout, lora.scale());
  whole.send();
  model.weights.refresh(ctx);
}

/// Answers each line of standard input. @throws UserError
inline void talk(const RunOptions& run, const BaseOptions& base, const LoraOptions& lora,
                 const PrecisionOptions& precision) {
  const GptConfig gpt = run.gpt();
  const int64_t T = gpt.seq_len;
  const BatchSize size{.window = T, .max_tokens = T, .prefill = T, .places = 1, .proposed = 0};
  const std::unique_ptr<Device> device = open_device(run);
  Arena arena(device.get());
  const Ctx ctx = make_ctx(run, arena, device.get());
  Generator model(arena, gpt, precision, size, size.pass());
  load_merged(ctx, model, base.base, run.load, lora);

  Speller speller(run.text_tokenizer ? &run.text_tokenizer->tokenizer : nullptr, base.chat.form);
  CodecOptions texts;
  texts.tokenizer = run.tokenizer;
  texts.end = speller.end();
  const TextCodec codec(texts, base.base, gpt.vocab);
  const Draw draw({.seed = run.seed, .temperature = base.temperature.value()});
  AnswerBatch batch(arena, codec, draw, texts, size);
  if (isatty(STDIN_FILENO) == 1)
    tell("each line is a message, an empty one begins anew; Ctrl-D ends");
  ChatTokens chat;
  std::string text;
  for (int64_t line = 0; std::getline(std::cin, text); ++line) {
    if (text.empty()) {
      chat = {};
      continue;
    }
    speller.add(chat, "user", text, Learn::Answers);
    speller.open(chat, "assistant");
    Answer answer{.line = line, .tokens = chat.tokens, .prompt = std::ssize(chat.tokens)};
    if (answer.prompt >= T)
      throw UserError(
          "line {}: the conversation has {} tokens, and the window {}; legal are {}. An empty line "
          "begins a new one",
          line + 1, answer.prompt, T, T - 1);
    batch.grow(ctx, model.decoder, *model.cache, std::span(&answer, 1));
    const bool ended = answer.end == End::Token;
    const std::span<const int32_t> said = answer.drawn().first(answer.drawn().size() - ended);
    fmt::print("{}\n", codec.decode(said));
    std::fflush(stdout);
    chat.add(said, true);
    speller.close(chat);
  }
}

}  // namespace ladder
