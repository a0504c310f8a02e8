// Continuous batching: answers share passes, and one that ends gives its place to the next.
//
// An answer's tokens are here. Its keys and values are at its place in the cache.
// Prefill, decode and speculation are one rule. A pass takes the tokens of a text that its cache
// lacks, and then the tokens that a draft proposes. Logits are wanted from the last token of the
// text on. At each of these rows the model draws a token. If it is the one that was proposed there,
// the next row counts, too. So at least one token is added, and at most one more than was proposed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "chapters/31_generate/cache.h"
#include "chapters/31_generate/decode.h"
#include "chapters/31_generate/draw.h"
#include "common/error.h"
#include "common/json.h"
#include "common/model/parts.h"
#include "common/run/command_line.h"
#include "common/run/ending.h"
#include "common/run/logits.h"
#include "common/run/text_codec.h"
#include "kernels/transfer.h"

namespace ladder {

/// Why an answer ends: it has --max-tokens, the window is full, or the model or --stop ended it.
enum class End : uint8_t { None, Length, Window, Token, Stop };
constexpr auto names_of(End) { return std::array{"none", "length", "window", "end", "stop"}; }

/// An answer to a prompt, while it grows and when it is done.
struct Answer {
  int64_t line = 0, number = 0;      ///< line of the prompt; which of its answers, from 0
  std::vector<int32_t> tokens;       ///< the prompt, then the answer
  int64_t prompt = 0;                ///< how many of them are the prompt
  std::vector<float> logprobs = {};  ///< log p of each token of the answer, before all filters
  std::string text = {};
  End end = End::None;
  int64_t step = 0;  ///< of a training that draws (chapter 37)

  std::span<const int32_t> drawn() const {
    return std::span(tokens).subspan(static_cast<size_t>(prompt));
  }
};

/// A line of --out.
inline std::string json_line(const Answer& answer) {
  const auto drawn = answer.drawn();
  return json_text({{"line", answer.line},
                    {"answer", answer.number},
                    {"text", answer.text},
                    {"tokens", std::vector<int32_t>(drawn.begin(), drawn.end())},
                    {"logprobs", answer.logprobs},
                    {"end", to_string(answer.end)}}) +
         "\n";
}

/// An answer in its place.
struct Placed {
  Answer* answer = nullptr;            ///< null: the place is free
  int64_t cached = 0;                  ///< tokens whose keys and values are there
  std::vector<int32_t> proposed = {};  ///< by a draft, for the next pass

  int64_t size() const { return std::ssize(answer->tokens); }
  int64_t pending() const { return size() - cached; }
};

struct BatchSize {
  int64_t window;      ///< T: a text that reaches it ends
  int64_t max_tokens;  ///< of an answer
  int64_t prefill;     ///< tokens of prompts in a pass
  int64_t places;      ///< answers that grow together
  int64_t proposed;    ///< most tokens of a draft
  bool whole = false;  ///< without a cache: a pass is the window of one text
  int64_t fixed = 0;   ///< rows of each product; 0: as many as the pass has

  PassSize pass() const {
    if (whole) return {window, 1};
    if (fixed > 0) return {fixed, fixed, true};
    return {prefill + places * (1 + proposed), places * (1 + proposed)};
  }
};

/// What a run counts.
struct BatchCounts {
  int64_t passes = 0, rows = 0;       ///< rows: of all passes, of texts
  int64_t prefilled = 0, shared = 0;  ///< tokens of prompts that were computed, and copied
  int64_t drawn = 0;
  int64_t proposed = 0, compared = 0, accepted = 0;  ///< tokens of a draft
  int64_t checked = 0;  ///< how often proposals for a text met the model

  /// How many rows products had for each row of a text; 0: without --fixed-rows.
  double padded(const BatchSize& size) const {
    return static_cast<double>(passes * size.fixed) /
           static_cast<double>(std::max<int64_t>(rows, 1));
  }
};

/// Products that always have M rows, for a GPU (PassSize::fixed).
struct FixedRowsOptions {
  int64_t rows = 0;  ///< M; 0: no padding

  void add_to(CommandLine& line) {
    line.add("--fixed-rows", rows,
             "on a GPU: pads each product to so many rows, so that no text depends on --batch and "
             "--prefill-tokens; 0: does not");
  }
  /// Cuts passes to M rows. @throws UserError
  void apply(BatchSize& size, const GptConfig& gpt, bool on_gpu) const {
    if (rows == 0) return;
    if (!on_gpu)
      throw UserError(
          "--fixed-rows is needless without a GPU: rows have the same bits in any product");
    if (size.whole) throw UserError("--fixed-rows with --no-cache; legal is one of them");
    const int64_t decoded = size.places * (1 + size.proposed);
    if (gpt.has_experts())
      throw UserError(
          "--fixed-rows with experts: their products have as many rows as tokens chose");
    if (rows <= decoded)
      throw UserError("--fixed-rows must be more than {}, what --batch texts take, not {}", decoded,
                      rows);
    size.fixed = rows;
    size.prefill = std::min(size.prefill, rows - decoded);
  }
};

class AnswerBatch {
 public:
  AnswerBatch(Arena& arena, const TextCodec& codec, const Draw& draw, const CodecOptions& texts,
              const BatchSize& size)
      : codec_(codec),
        draw_(draw),
        stop_(texts.stop),
        size_(size),
        targets_(arena.shared(Mem::Activation, "targets", Dtype::I32, {size.pass().wanted, 1})),
        losses_(arena.shared(Mem::Activation, "losses", Dtype::F32, {size.pass().wanted})),
        places_(static_cast<size_t>(size.places)) {}
  static int64_t bytes(const BatchSize& size) { return 8 * size.pass().wanted; }

  std::span<Placed> places() { return places_; }
  const BatchCounts& counts() const { return counts_; }
  float temperature = 1;  ///< answers keep log p of logits / temperature (chapter 37)
  /// Called with an answer when it has new tokens.
  std::function<void(const Answer&)> watch;

  /// Gives a free place to `answer`. If an answer to the same prompt is there, the prompt's keys
  /// and values are copied: they are computed once. @return false if no place is free, or if the
  /// prompt is not yet ready to be copied
  bool admit(const Ctx& ctx, const KvCache* cache, Answer& answer) {
    const auto free = std::ranges::find(places_, nullptr, &Placed::answer);
    if (free == places_.end()) return false;
    const auto same = std::ranges::find_if(places_, [&](const Placed& text) {
      return cache && text.answer && text.answer->line == answer.line;
    });
    // The last token of the prompt is left: its logits are drawn from.
    const int64_t known = same == places_.end() ? 0 : answer.prompt - 1;
    if (same != places_.end() && same->cached < known) return false;
    *free = {.answer = &answer, .cached = known};
    if (known > 0) cache->copy(ctx, free - places_.begin(), same - places_.begin(), known);
    counts_.shared += known;
    return true;
  }

  /// The rows of the next pass. The spans live until the next call.
  std::vector<TextRows> rows() {
    fed_.assign(places_.size(), {});
    if (size_.whole) return {whole_text()};
    std::vector<TextRows> pass;
    int64_t left = size_.prefill;
    for (size_t i = 0; i < places_.size(); ++i) {
      const Placed& text = places_[i];
      if (!text.answer) continue;
      // A token that was drawn is no prefill, and always has its row.
      const int64_t m = text.pending() == 1 ? 1 : std::min(text.pending(), left);
      if (text.pending() > 1) left -= m;
      if (m == 0) continue;
      const auto begin = text.answer->tokens.begin() + text.cached;
      fed_[i].assign(begin, begin + m);
      const bool whole = m == text.pending();
      if (whole) fed_[i].insert(fed_[i].end(), text.proposed.begin(), text.proposed.end());
      const int64_t all = std::ssize(fed_[i]);
      pass.push_back({.place = static_cast<int64_t>(i),
                      .first = text.cached,
                      .tokens = fed_[i],
                      .wanted = {whole ? m - 1 : all, all}});
      counts_.prefilled += text.cached < text.answer->prompt ? m : 0;
    }
    return pass;
  }

  /// Draws from the logits (W,Vp) of a pass, and ends answers that are complete.
  void take(const Ctx& ctx, std::span<const TextRows> pass, Tensor logits) {
    ++counts_.passes;
    for (const TextRows& rows : pass) counts_.rows += std::ssize(rows.tokens);
    const HostCopy host = HostCopy::of(ctx, logits);
    std::vector<Answer*> owners(static_cast<size_t>(logits ? logits.dim(0) : 0));
    std::fill_n(targets_.data<int32_t>(), std::ssize(owners), kIgnore);
    int64_t row = 0;
    for (const TextRows& rows : pass) {
      Placed& text = places_[static_cast<size_t>(rows.place)];
      const int64_t old = text.size();
      accept(text, rows, host.tensor(), row);
      for (int64_t i = 0; i < text.size() - old; ++i) {
        owners[static_cast<size_t>(row + i)] = text.answer;
        targets_.data<int32_t>()[row + i] = text.answer->tokens[static_cast<size_t>(old + i)];
      }
      row += rows.wanted.size();
    }
    score(ctx, logits, owners);
    for (Placed& text : places_) {
      if (!text.answer) continue;
      if (watch) watch(*text.answer);
      if (text.answer->end != End::None) text = {};
    }
  }

  /// Lets answers grow until all have ended. @param stops whether a signal stops it after a pass
  template <class Answers>
  void grow(const Ctx& ctx, const Decoder& decoder, const KvCache& cache, Answers&& answers,
            bool stops = false) {
    auto next = answers.begin();
    const auto busy = [&] {
      while (next != answers.end() && admit(ctx, &cache, *next)) ++next;
      return std::ranges::any_of(places_, [](const Placed& text) { return text.answer; });
    };
    while (!(stops && stop_signal() != 0) && busy()) {
      const std::vector<TextRows> pass = rows();
      take(ctx, pass, decoder.forward(ctx, pass));
    }
  }

  static DrawKey key_of(const Answer& answer, int64_t ahead = 0) {
    return {.line = answer.line,
            .answer = answer.number,
            .position = std::ssize(answer.tokens) + ahead,
            .step = answer.step};
  }

 private:
  /// Without a cache: the window of the text whose turn it is, with zeros behind its last token.
  TextRows whole_text() {
    do {
      turn_ = (turn_ + 1) % places_.size();
    } while (!places_[turn_].answer);
    const Placed& text = places_[turn_];
    fed_[turn_] = text.answer->tokens;
    fed_[turn_].resize(static_cast<size_t>(size_.window));
    return {static_cast<int64_t>(turn_), 0, fed_[turn_], {text.size() - 1, text.size()}};
  }

  /// Adds a token for each row that is wanted, until one is not as proposed. @param row the first
  /// of them in logits (W,Vp)
  void accept(Placed& text, const TextRows& rows, const Tensor& logits, int64_t row) {
    text.cached = rows.first + std::ssize(rows.tokens);
    if (rows.wanted.size() == 0) return;
    Answer& answer = *text.answer;
    counts_.proposed += std::ssize(text.proposed);
    counts_.checked += text.proposed.empty() ? 0 : 1;
    for (size_t i = 0; answer.end == End::None; ++i) {
      std::vector<float> values = row_of(logits.slice(row + static_cast<int64_t>(i), 1));
      values.resize(static_cast<size_t>(codec_.vocab()));
      const int32_t token = draw_(values, answer.tokens, key_of(answer));
      answer.tokens.push_back(token);
      ++counts_.drawn;
      end_answer(answer);
      if (i == text.proposed.size()) break;
      ++counts_.compared;
      if (token != text.proposed[i]) break;
      ++counts_.accepted;
    }
    text.proposed.clear();
    // Rows of refused tokens stay behind the last token, until later rows are written over them.
    text.cached = text.size() - 1;
  }

  void end_answer(Answer& answer) const {
    const std::span<const int32_t> drawn = answer.drawn();
    const bool token = codec_.end_of_text() == drawn.back();
    answer.text = codec_.decode(drawn);
    if (token) answer.end = End::Token;
    for (const std::string& stop : stop_)
      if (const size_t at = answer.text.find(stop); at != std::string::npos) {
        answer.text.resize(at);
        answer.end = End::Stop;
      }
    if (answer.end != End::None) return;
    if (std::ssize(drawn) == size_.max_tokens)
      answer.end = End::Length;
    else if (std::ssize(answer.tokens) == size_.window)
      answer.end = End::Window;
  }

  /// log p of the tokens, by the operation that computes training's loss: a row is a sequence of
  /// one token.
  void score(const Ctx& ctx, Tensor logits, std::span<Answer* const> owners) const {
    const int64_t W = std::ssize(owners);
    if (W == 0) return;
    if (temperature != 1) ctx.kernels->scale(ctx, logits, 1 / temperature);
    head_loss(ctx, losses_.first(W), logits.view({W, 1, logits.dim(1)}), targets_.first(W),
              codec_.vocab());
    ctx.synchronize();
    for (int64_t i = 0; i < W; ++i)
      if (Answer* const owner = owners[static_cast<size_t>(i)])
        owner->logprobs.push_back(-losses_.data<float>()[i]);
  }

  const TextCodec& codec_;
  const Draw& draw_;
  std::vector<std::string> stop_;
  BatchSize size_;
  Tensor targets_, losses_;  ///< (W,1) I32, (W)
  std::vector<Placed> places_;
  std::vector<std::vector<int32_t>> fed_;  ///< tokens of the pass, by place
  size_t turn_ = 0;
  BatchCounts counts_;
};

}  // namespace ladder
