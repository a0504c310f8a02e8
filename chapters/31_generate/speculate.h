// Speculation: a small model, the draft, proposes the next k tokens, and the large one computes all
// of them in one pass (arXiv 2211.17192).
//
// The large model makes its own draw at every position, as it would without a draft, and keeps the
// draft's tokens as far as they are the same (AnswerBatch). So a draft changes when tokens come,
// and never which. The draft draws with the same noise: where the two distributions are near, so
// are their draws. Rejection sampling, which most programs use, keeps a few more tokens and gives
// another text.
//
// If a token is kept with probability a, independently, a pass gives (1 - a^(k+1)) / (1 - a)
// tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "chapters/31_generate/batch.h"
#include "chapters/31_generate/decode.h"
#include "chapters/31_generate/draw.h"
#include "common/run/command_line.h"
#include "kernels/transfer.h"

namespace ladder {

struct DraftOptions {
  std::string load;
  int64_t tokens = 4;

  void add_to(CommandLine& line) {
    line.group("31_generate: speculation");
    line.add("--draft", load,
             "a checkpoint of a smaller model with the same tokens, which proposes tokens: the "
             "same texts, sooner");
    line.add("--draft-tokens", tokens, "how many tokens the draft proposes at a time",
             {.needs = {"--draft"}});
  }
  /// @throws UserError
  void check() const { require_range("--draft-tokens", tokens, 1, 64); }
  int64_t most() const { return load.empty() ? 0 : tokens; }
};

class Draft {
 public:
  /// @param decoder of the draft, with a cache of as many places
  Draft(const Decoder& decoder, const Draw& draw, int64_t vocab, const BatchSize& size)
      : decoder_(decoder),
        draw_(draw),
        vocab_(vocab),
        size_(size),
        known_(static_cast<size_t>(size.places)) {}
  /// What a pass of the draft takes: one token of each text, or two where all were kept,
  /// since it has not computed its own last proposal.
  static PassSize pass(const BatchSize& size) {
    return {std::max(size.prefill, 2 * size.places), size.places};
  }

  /// Proposes tokens for each text whose next pass has one token.
  void propose(const Ctx& ctx, std::span<Placed> places) {
    for (size_t i = 0; i < places.size(); ++i)
      if (wants(places[i])) catch_up(ctx, places, i);
    for (int64_t k = 0; k < size_.proposed; ++k)
      if (!propose_one(ctx, places, k)) break;
  }

 private:
  /// Which text a place of the draft's cache has, and how many of its tokens.
  struct Known {
    int64_t line = -1, number = 0;
    int64_t cached = 0;
  };

  /// How many tokens a text can take beside the model's own.
  int64_t room(const Placed& text) const {
    return std::min({size_.proposed, size_.window - text.size() - 1,
                     size_.max_tokens - std::ssize(text.answer->drawn()) - 1});
  }
  bool wants(const Placed& text) const {
    return text.answer && text.pending() == 1 && room(text) > 0;
  }

  /// The draft's cache: forgets tokens that were refused, and computes all but the last two.
  void catch_up(const Ctx& ctx, std::span<Placed> places, size_t i) {
    const Answer& answer = *places[i].answer;
    Known& known = known_[i];
    if (known.line != answer.line || known.number != answer.number)
      known = {answer.line, answer.number, 0};
    known.cached = std::min(known.cached, places[i].size() - 1);
    while (places[i].size() - known.cached > 2) {
      const int64_t m = std::min(places[i].size() - 2 - known.cached, decoder_.size().rows);
      const TextRows rows{static_cast<int64_t>(i),
                          known.cached,
                          std::span(answer.tokens)
                              .subspan(static_cast<size_t>(known.cached), static_cast<size_t>(m)),
                          {m, m}};
      decoder_.forward(ctx, {&rows, 1});
      known.cached += m;
    }
  }

  /// The k-th token of each text that has room for it. @return false if none has
  bool propose_one(const Ctx& ctx, std::span<Placed> places, int64_t k) {
    std::vector<std::vector<int32_t>> texts(places.size());
    std::vector<TextRows> pass;
    for (size_t i = 0; i < places.size(); ++i) {
      const Placed& text = places[i];
      if (!wants(text) || room(text) <= k) continue;
      texts[i] = text.answer->tokens;
      texts[i].insert(texts[i].end(), text.proposed.begin(), text.proposed.end());
      const std::span<const int32_t> fed =
          std::span(texts[i]).subspan(static_cast<size_t>(known_[i].cached));
      pass.push_back(
          {static_cast<int64_t>(i), known_[i].cached, fed, {std::ssize(fed) - 1, std::ssize(fed)}});
    }
    if (pass.empty()) return false;
    const HostCopy logits = HostCopy::of(ctx, decoder_.forward(ctx, pass));
    for (size_t row = 0; row < pass.size(); ++row) {
      const auto i = static_cast<size_t>(pass[row].place);
      std::vector<float> values = row_of(logits.tensor().slice(static_cast<int64_t>(row), 1));
      values.resize(static_cast<size_t>(vocab_));
      places[i].proposed.push_back(
          draw_(values, texts[i], AnswerBatch::key_of(*places[i].answer, k)));
      known_[i].cached = std::ssize(texts[i]);
    }
    return true;
  }

  const Decoder& decoder_;
  const Draw& draw_;
  int64_t vocab_;
  BatchSize size_;
  std::vector<Known> known_;
};

}  // namespace ladder
