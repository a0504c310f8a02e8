// The cache's rows, logits of a text that comes in pieces, and a batch whose logits are drawn.
#include "labs/check.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "chapters/31_generate/batch.h"
#include "common/model/init.h"
#include "labs/kernel_counts.h"

namespace ladder::lab {
namespace {

constexpr int64_t kWindow = 512, kVocab = 16, kPadded = 32, kRows = 24;

/// Blocks of two layers whose query heads share keys and values.
GptConfig model(const Sheet& sheet, Position position) {
  const auto groups = sheet.pick<int64_t>("groups", {2, 4});
  GptConfig gpt{.name = "lab",
                .layers = 2,
                .heads = 2 * groups,
                .channels = 8 * groups,
                .seq_len = kWindow,
                .positions = kWindow,
                .vocab = kVocab,
                .padded_vocab = kVocab,
                .kv_heads = groups};
  gpt.position = position;
  return gpt;
}

struct Desk {
  CountedKernels kernels;
  Ctx& ctx = kernels.ctx();
  Arena arena;
};

/// Every row of every place has numbers of its own before the cache is written.
void fill(const Sheet& sheet, const KvCache& cache) {
  for (int64_t place = 0; place < cache.places(); ++place)
    for (const int64_t l : {0, 1})
      sheet.draw(cache.rows(place, l), "old", static_cast<uint64_t>(2 * place + l));
}
void show(Sheet& sheet, const std::string& gate, const KvCache& cache) {
  for (int64_t place = 0; place < cache.places(); ++place)
    for (const int64_t l : {0, 1})
      sheet.bits(fmt::format("{}: place {}, block {}", gate, place, l), cache.rows(place, l));
}

void run_cache(Sheet& sheet) {
  Desk desk;
  const GptConfig gpt = model(sheet, Position::Rope);
  const KvCache cache(desk.arena, gpt, 3, kRows, Dtype::F32);
  fill(sheet, cache);
  const auto m = sheet.pick<int64_t>("rows of a piece", {4, 5, 7});
  const auto qkv = [&](uint64_t piece) {
    return sheet.drawn(desk.arena, "qkv", {m, gpt.qkv_rows()}, piece);
  };
  for (const int64_t l : {0, 1}) {
    cache.append(desk.ctx, 1, l, 0, qkv(static_cast<uint64_t>(l)));
    cache.append(desk.ctx, 1, l, m, qkv(static_cast<uint64_t>(2 + l)));
  }
  show(sheet, "cache/append", cache);
  fill(sheet, cache);
  cache.copy(desk.ctx, 2, 0, m + 1);
  show(sheet, "cache/copy", cache);
}

void run_room(Sheet& sheet) {
  GptConfig gpt = model(sheet, Position::Rope);
  const auto places = sheet.pick<int64_t>("places", {3, 5});
  int64_t bytes = 0, of_all_heads = 0;
  for (const int64_t kv_heads : {gpt.kv_heads, int64_t{0}})  // 0: each head is a group
    for (const Dtype dtype : {Dtype::F32, Dtype::BF16}) {
      gpt.kv_heads = kv_heads;
      bytes += KvCache::bytes(gpt, places, kRows, dtype);
      of_all_heads += size_of(dtype) * places * kRows * 2 * 2 * gpt.channels;
    }
  sheet.without_idea("room", of_all_heads);
  sheet.count("room", bytes);
}

/// A model with random weights, whose attention is not nearly even, and a text.
struct Model : Desk {
  Model(const Sheet& sheet, Position position) : gpt(model(sheet, position)) {
    init_params(ctx, params, layout, sheet.seed());
    ctx.kernels->scale(ctx, params, 5.0f);
    const Random random(sheet.seed(), "text");
    for (uint64_t t = 0; t < static_cast<uint64_t>(kWindow); ++t)
      text.push_back(static_cast<int32_t>(random.below(kVocab, t)));
  }
  TextRows rows(int64_t place, int64_t first, int64_t m) const {
    return {place,
            first,
            std::span(text).subspan(static_cast<size_t>(first), static_cast<size_t>(m)),
            {0, m}};
  }
  /// Of the last rows of a pass, at most 16: where a mask or a border is wrong, they are, too.
  std::vector<float> forward(const std::vector<TextRows>& pass) const {
    const Tensor logits = decoder.forward(ctx, pass);
    const int64_t all = logits.dim(0), few = std::min<int64_t>(all, 16);
    const float* const from = logits.slice(all - few, few).data<float>();
    return {from, from + few * kVocab};
  }

  GptConfig gpt;
  ParamLayout layout{gpt};
  Tensor params = arena.alloc(Mem::Param, "params", Dtype::F32, {layout.size()});
  Balance balance{arena, gpt, {}};
  KvCache cache{arena, gpt, 2, kWindow, Dtype::F32};
  Decoder decoder{arena, gpt, layout.view(params), balance, &cache, {kWindow, kWindow}, Dtype::F32};
  std::vector<int32_t> text;
};

void run_pieces(Sheet& sheet, Position position, int64_t m) {
  Model model(sheet, position);
  fill(sheet, model.cache);
  const auto n = sheet.pick<int64_t>("tokens of a text", {301, 347, 389});
  std::vector<float> last;
  for (int64_t t = 0; t < n; t += m) last = model.forward({model.rows(0, t, std::min(m, n - t))});
  sheet.bits("attend/the last rows", last);
  if (m < 100) return;
  // Neighbors in a pass: the beginning of another text, and a token of the long one.
  TextRows other = model.rows(1, n, 9);
  other.first = 0;
  sheet.bits("attend/two texts", model.forward({other, model.rows(0, n, 1)}));
}

/// A batch without a model: logits are drawn for each line and position. Padding has larger ones.
struct Batch : Desk {
  Batch(const Sheet& sheet_, const DrawOptions& options, const CodecOptions& texts, BatchSize size)
      : sheet(sheet_), draw(options), codec(texts, "", kVocab) {
    batch.emplace(arena, codec, draw, texts, size);
    logits = arena.alloc(Mem::Activation, "logits", Dtype::F32, {size.pass().wanted, kPadded});
  }
  std::vector<float> logits_at(int64_t line, int64_t position) const {
    std::vector<float> row =
        sheet.normals("logits", kVocab, static_cast<uint64_t>(100 * line + position));
    for (float& x : row) x *= 2;
    return row;
  }
  /// The next n tokens of an answer, as the model draws them without a draft.
  std::vector<int32_t> next(Answer answer, int64_t n) const {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < n; ++i) {
      std::vector<float> row = logits_at(answer.line, std::ssize(answer.tokens));
      tokens.push_back(draw(row, answer.tokens, AnswerBatch::key_of(answer)));
      answer.tokens.push_back(tokens.back());
    }
    return tokens;
  }
  void pass() {
    const std::vector<TextRows> rows = batch->rows();
    int64_t W = 0;
    for (const TextRows& text : rows)
      for (int64_t i = text.wanted.begin; i < text.wanted.end; ++i, ++W) {
        const int64_t line = batch->places()[static_cast<size_t>(text.place)].answer->line;
        std::vector<float> row = logits_at(line, text.first + i + 1);
        row.resize(kPadded, 99);
        std::ranges::copy(row, logits.data<float>() + W * kPadded);
      }
    batch->take(ctx, rows, W == 0 ? Tensor{} : logits.first(W));
  }

  const Sheet& sheet;
  Draw draw;
  TextCodec codec;
  std::optional<AnswerBatch> batch;
  Tensor logits;
};

Answer answer_of(int64_t line, int64_t number, int64_t prompt) {
  Answer answer{.line = line, .number = number, .tokens = {}, .prompt = prompt};
  for (int64_t t = 0; t < prompt; ++t)
    answer.tokens.push_back(static_cast<int32_t>((7 * t + 3 * line) % kVocab));
  return answer;
}

void run_places(Sheet& sheet) {
  Batch b(sheet, {}, {.tokenizer = {}, .tokens = TextTokens::Ids, .stop = {}},
          {.window = kRows, .max_tokens = 4, .prefill = 8, .places = 3, .proposed = 0});
  const KvCache cache(b.arena, model(sheet, Position::Rope), 3, kRows, Dtype::F32);
  fill(sheet, cache);
  const auto n = sheet.pick<int64_t>("tokens of a prompt", {6, 9, 12});
  std::array answers{answer_of(0, 0, n), answer_of(0, 1, n), answer_of(1, 0, n), answer_of(0, 2, n),
                     answer_of(1, 1, n)};
  const std::span<Placed> places = b.batch->places();
  const auto admit = [&](const char* when, size_t i) {
    const bool taken = b.batch->admit(b.ctx, &cache, answers[i]);
    std::string text = taken ? "taken" : "waits";
    for (const Placed& p : places)
      text += p.answer ? fmt::format(", {}.{} has {}", p.answer->line, p.answer->number, p.cached)
                       : ", free";
    sheet.text(fmt::format("places/{}", when), text);
  };
  admit("an empty batch", 0);
  places[0].cached = n - 2;
  admit("a prompt that is not ready", 1);
  places[0].cached = n + 2;
  admit("a prompt that is there", 1);
  admit("another prompt", 2);
  places[2].cached = n;
  admit("no room", 4);
  places[0] = {};
  admit("a place that has become free", 4);
  sheet.bits("places/rows that were copied: place 1", cache.rows(1, 1));
  sheet.bits("places/rows that were copied: place 0", cache.rows(0, 1));
  sheet.without_idea("shared", 0);
  sheet.count("shared", b.batch->counts().shared);
}

void run_accept(Sheet& sheet, double temperature) {
  const auto k = sheet.pick<int64_t>("proposed", {3, 4});
  Batch b(sheet, {.temperature = temperature, .repetition_penalty = temperature == 0 ? 1 : 1.5},
          {.tokenizer = {}, .tokens = TextTokens::Ids, .stop = {}},
          {.window = 64, .max_tokens = 12, .prefill = 8, .places = 6, .proposed = k});
  const std::array<const char*, 6> names{"all are right",       "the first is wrong",
                                         "the second is wrong", "none is proposed",
                                         "a long prompt",       "the end comes first"};
  std::vector<Answer> answers;
  for (int64_t i = 0; i < 6; ++i) answers.push_back(answer_of(i, 0, i == 4 ? 20 : 9));
  // The last answer has room for two tokens more.
  for (int i = 0; i < 10; ++i) answers[5].tokens.push_back(b.next(answers[5], 1)[0]);
  for (size_t i = 0; i < 6; ++i) {
    Answer& answer = answers[i];
    Placed& place = b.batch->places()[i];
    place = {.answer = &answer, .cached = i == 4 ? 0 : std::ssize(answer.tokens) - 1};
    if (i == 3 || i == 4) continue;
    place.proposed = b.next(answer, k);
    if (i == 1 || i == 2) (place.proposed[i - 1] += 1) %= static_cast<int32_t>(kVocab);
  }
  for (int pass = 0; pass < 3; ++pass) {
    b.pass();
    for (size_t i = 0; i < 6; ++i) {
      const Placed& place = b.batch->places()[i];
      sheet.text(fmt::format("accept/{}: pass {}", names[i], pass),
                 fmt::format("tokens {}; {} in the cache; {} proposed; end {}",
                             fmt::join(answers[i].drawn(), " "), place.cached,
                             place.proposed.size(), to_string(answers[i].end)));
    }
  }
  const BatchCounts& c = b.batch->counts();
  for (const auto& [name, figure] : {std::pair{"drawn", c.drawn},
                                     {"proposed", c.proposed},
                                     {"compared", c.compared},
                                     {"accepted", c.accepted},
                                     {"checked", c.checked}})
    sheet.text(fmt::format("counted/figures: {}", name), fmt::format("{}", figure));
}

}  // namespace

void cases(Sheet& sheet) {
  sheet.run("rows of a cache", [&] { run_cache(sheet); });
  sheet.run("bytes of a cache", [&] { run_room(sheet); });
  for (const int64_t m : {1, 7, 100, 512})
    sheet.run(fmt::format("pieces of {}", m), [&] { run_pieces(sheet, Position::Rope, m); });
  sheet.run("without rotary positions", [&] { run_pieces(sheet, Position::Learned, 7); });
  sheet.run("places of a batch", [&] { run_places(sheet); });
  for (const double temperature : {0.0, 1.0})
    sheet.run(fmt::format("proposals, temperature {}", temperature),
              [&] { run_accept(sheet, temperature); });
}

}  // namespace ladder::lab
