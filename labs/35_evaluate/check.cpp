// Requests of questions and texts, log-likelihoods of texts in rows, verdicts, standard errors.
#include "labs/check.h"

#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "chapters/35_evaluate/requests.h"
#include "chapters/35_evaluate/scorer.h"
#include "chapters/35_evaluate/scores.h"
#include "labs/kernel_counts.h"

namespace ladder::lab {
namespace {

/// Token 0 is the prefix. A blank belongs to the word behind it, if the two are encoded together.
const std::array<std::string, 9> kTokens{"^", " ", "\n", "a", "b", "ab", " a", " ab", "\n "};
constexpr int64_t kWindow = 8;

/// The longest token that fits comes first.
std::vector<int32_t> encode(const std::string& text) {
  std::vector<int32_t> tokens;
  for (size_t at = 0; at < text.size();) {
    size_t best = 0, longest = 0;
    for (size_t i = 0; i < kTokens.size(); ++i)
      if (kTokens[i].size() > longest && text.compare(at, kTokens[i].size(), kTokens[i]) == 0) {
        best = i;
        longest = kTokens[i].size();
      }
    tokens.push_back(static_cast<int32_t>(best));
    at += longest;
  }
  return tokens;
}

/// A text of about n tokens without blanks at its ends.
std::string text_of(const Random& random, uint64_t stream, uint64_t n) {
  std::string text = "a";
  for (uint64_t i = 0; i < n; ++i) text += kTokens[1 + random.below(8, 100 * stream + i)];
  return text + "b";
}

std::string shown(const Request& request) {
  return fmt::format("{} | {}", fmt::join(request.tokens, " "), request.scored);
}

void run_pairs(Sheet& sheet, bool always) {
  const Requests requests(encode, 0, always, kWindow);
  const Random random(sheet.seed(), "texts");
  const auto row = [&](const char* what, uint64_t i, const std::string& context,
                       const std::string& choice) {
    std::string said = "refused";
    try {
      said = shown(requests.pair(context, choice));
    } catch (const UserError&) {
    }
    sheet.text(fmt::format("pairs/{}: {}", what, i), said);
  };
  for (uint64_t i = 0; i < 4; ++i) {
    const std::string context = text_of(random, i, 1), choice = " " + text_of(random, 10 + i, 1);
    row("short", i, context, choice);
    row("blanks at the end", i, context + (i % 2 == 0 ? " " : "\n"), choice.substr(i % 2));
    row("a long context", i, text_of(random, 20 + i, 9), choice);
    row("no context", i, i % 2 == 0 ? "" : " \n", choice.substr(1));
    row("the prefix in the choice", i, "", "^" + choice);
    row("a token across the border", i, context + "a", "b" + choice);
  }
  row("a choice as long as the window", 0, "ab", std::string(kWindow, 'b'));
  row("a longer choice", 0, "ab", std::string(kWindow + 1, 'b'));
  row("a choice without a token", 0, "", "^");
}

void run_windows(Sheet& sheet) {
  for (const int64_t n : {1, 3, 8, 9, 16, 21}) {
    const int64_t tokens = n == 21 ? sheet.pick<int64_t>("tokens", {19, 21, 22}) : n;
    std::string text;
    for (int64_t i = 0; i < tokens; ++i) text += "ba\n"[i % 3];  // each is a token of its own
    text.back() = '^';
    int at = 0;
    for (const Request& window : Requests(encode, 0, false, kWindow).windows(text))
      sheet.text(fmt::format("windows/{} tokens: {}", n, at++), shown(window));
    sheet.text(fmt::format("windows/{} tokens: count", n), fmt::format("{}", at));
  }
}

void run_scores(Sheet& sheet, bool ties) {
  CountedKernels kernels;
  const Ctx& ctx = kernels.ctx();
  Arena arena;
  const int64_t T = 24, C = 8, V = 12, Vp = 64;
  GptConfig gpt;
  gpt.seq_len = T;
  gpt.channels = C;
  gpt.vocab = V;
  gpt.padded_vocab = Vp;
  const Scorer scorer(arena, gpt, Dtype::F32);
  const Tensor norm = sheet.drawn(arena, "norm", {T, C}),
               head = sheet.drawn(arena, "head", {Vp, C});
  const Tensor logits = arena.alloc(Mem::Activation, "logits", Dtype::F32, {T, Vp});
  if (ties)  // each token has the logits of another one
    std::copy_n(head.data<float>(), V / 2 * C, head.data<float>() + V / 2 * C);
  std::vector<int32_t> learned;
  const Random random(sheet.seed(), "learned");
  for (uint64_t i = 0; i < static_cast<uint64_t>(T); ++i) {
    // Most of them are what is most likely, of all or of those that tie. One in eight is surely
    // not: so the text of tokens 12 to 19 is not greedy, although its last token is.
    std::vector<double> of(static_cast<size_t>(V));
    for (int64_t v = 0; v < V; ++v)
      for (int64_t c = 0; c < C; ++c)
        of[static_cast<size_t>(v)] += double{norm.data<float>()[static_cast<int64_t>(i) * C + c]} *
                                      double{head.data<float>()[v * C + c]};
    const auto best = static_cast<int32_t>(std::ranges::max_element(of) - of.begin());
    const auto any = static_cast<int32_t>(random.below(static_cast<uint64_t>(V), i));
    const auto worse = static_cast<int32_t>((best + 1 + any % (V / 2 - 1)) % V);
    learned.push_back(i % 8 < 5 ? best : i % 8 == 5 ? worse : any);
  }
  const auto begin = sheet.pick<int64_t>("begin", {1, 2, 3});
  const std::vector<Range> scored{{begin, begin + 3}, {8, 10}, {12, 20}, {begin + 17, T}};
  const auto rows = [&](const std::string& what, const std::vector<Range>& some) {
    int at = 0;
    for (const LogLikelihood& one : scorer.score(ctx, logits, norm, head, learned, some)) {
      sheet.text(fmt::format("scores/{}, sums: {}", what, at), fmt::format("{:a}", one.sum));
      sheet.text(fmt::format("scores/{}, greedy: {}", what, at), one.greedy ? "yes" : "no");
      sheet.text(fmt::format("scores/{}, tokens: {}", what, at++), fmt::format("{}", one.tokens));
    }
  };
  rows("together", scored);
  for (const Range& one : scored) rows(fmt::format("alone from {}", one.begin), {one});
}

void run_verdicts(Sheet& sheet) {
  for (uint64_t i = 0; i < 12; ++i) {
    Task task{
        .choices = {"four", "\xe4\xba\x8c\xe5\x8d\x81", "eighteen", "\xc3\xa9t\xc3\xa9", "no"}};
    Outcome outcome;
    const std::vector<float> x = sheet.normals("sums", 5, i);
    for (size_t c = 0; c < 5; ++c)
      outcome.of.push_back({.sum = i < 3 ? -4.0 : -8 + double{x[c]},
                            .greedy = false,
                            .tokens = 1 + static_cast<int64_t>((c + i) % 4)});
    const auto best = [&](const char* what, auto&& length) {
      sheet.text(fmt::format("verdicts/{}: {}", what, i),
                 fmt::format("{}", best_choice(task, outcome, length)));
    };
    best("by the sum", [](const std::string&) { return 1; });
    best("by characters", [](const std::string& s) { return characters(s); });
    best("by bytes", [](const std::string& s) { return std::ssize(s); });
  }
}

void run_errors(Sheet& sheet) {
  for (const int64_t n : {1, 2, 40}) {
    Ratio share, bits;
    const std::vector<float> x = sheet.normals("lines", 2 * n, static_cast<uint64_t>(n));
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      share.add({i % 3 == 0 ? 1.0 : 0.0, 1.0});
      bits.add({100 + 10 * double{x[2 * i]}, 40 + 10 * double{x[2 * i + 1]}});
    }
    // abs(): the sign of a NaN says nothing.
    for (const auto& [what, ratio] : {std::pair{"a share", &share}, {"bits per byte", &bits}})
      sheet.text(fmt::format("errors/{} of {} lines", what, n),
                 fmt::format("{:.6g}", std::abs(ratio->error())));
  }
}

}  // namespace

void cases(Sheet& sheet) {
  for (const bool always : {false, true})
    sheet.run(always ? "questions behind the prefix" : "questions",
              [&] { run_pairs(sheet, always); });
  sheet.run("texts", [&] { run_windows(sheet); });
  for (const bool ties : {false, true})
    sheet.run(ties ? "rows with ties" : "rows", [&] { run_scores(sheet, ties); });
  sheet.run("choices", [&] { run_verdicts(sheet); });
  sheet.run("errors", [&] { run_errors(sheet); });
}

}  // namespace ladder::lab
