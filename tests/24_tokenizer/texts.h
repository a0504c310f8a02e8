// Random texts in which what tokenizers treat differently is frequent, and a small tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/random.h"
#include "common/tokens/tokenizer_files.h"

namespace ladder::test {

/// The bytes, and these tokens.
inline TokenizerBuilder with_tokens(const std::vector<std::string>& tokens,
                                    Split split = Split::Gpt2) {
  TokenizerBuilder builder(split);
  int64_t id = 0;
  for (const char c : alphabet()) builder.add_token(std::string(1, c), id++, "");
  for (const std::string& token : tokens) builder.add_token(token, id++, token);
  return builder;
}
/// The bytes, what these merges make, and the end of text.
inline Tokenizer with_merges(const std::vector<std::pair<std::string, std::string>>& merges,
                             Split split = Split::Gpt2) {
  std::vector<std::string> tokens;
  for (const auto& [left, right] : merges) tokens.push_back(left + right);
  TokenizerBuilder builder = with_tokens(tokens, split);
  for (const auto& [left, right] : merges) builder.add_merge(left, right);
  builder.add_added(kEndOfText, {}, 256 + std::ssize(tokens));
  Tokenizer made = builder.finish();
  made.end_texts_with(256 + std::ssize(tokens));
  return made;
}
/// Three merges, one of a blank.
inline Tokenizer small(Split split = Split::Gpt2) {
  return with_merges({{" ", "a"}, {"b", "c"}, {" a", "bc"}}, split);
}

class Texts {
 public:
  explicit Texts(uint64_t seed) : random_(seed, "texts") {}

  uint64_t below(uint64_t n) { return random_.below(n, drawn_++); }

  /// Up to 40 parts.
  std::string next() {
    static constexpr std::array<std::string_view, 24> kParts = {
        "a", "aa", "b",      "the",    "'s",     "'S",     "'ll",        "'",
        " ", " ",  "  ",     "\n",     "\r\n",   "\t",     "1",          "12",
        "!", "?!", "\u00e9", "\u4e2d", "\u00a0", "\u00bd", "\U0001f600", "\xFF"};
    std::string text;
    for (uint64_t parts = below(40); parts > 0; --parts) text += kParts[below(kParts.size())];
    return text;
  }

 private:
  Random random_;
  uint64_t drawn_ = 0;
};

}  // namespace ladder::test
