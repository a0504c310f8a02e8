// Random texts in which what tokenizers treat differently is frequent, and a small tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/random.h"
#include "common/tokens/tokenizer_files.h"

namespace ladder::test {

/// The bytes and three merges, one of a blank.
inline Tokenizer small(Split split = Split::Gpt2) {
  TokenizerBuilder builder(split);
  int64_t id = 0;
  for (const char c : alphabet()) builder.add_token(std::string(1, c), id++, "");
  for (const char* token : {" a", "bc", " abc"}) builder.add_token(token, id++, token);
  builder.add_merge(" ", "a");
  builder.add_merge("b", "c");
  builder.add_merge(" a", "bc");
  builder.add_special(kEndOfText, id);
  return builder.finish();
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
