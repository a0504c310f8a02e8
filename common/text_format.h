// What a file of training data holds: text, each byte of which is a token, or tokens of a
// tokenizer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/input_file.h"
#include "common/names.h"

namespace ladder {

/// How a file stores its tokens: as little-endian numbers, one after the other.
struct TextFormat {
  int64_t width = 1;   ///< bytes per token: 1, 2 or 4
  int64_t header = 0;  ///< bytes before the first token

  bool bytes() const { return width == 1; }
  /// How many tokens a file of `size` bytes has.
  int64_t count(int64_t size) const { return (size - header) / width; }
};

/// What the flag --tokens says about a file.
enum class TokenKind : uint8_t {
  Auto,    ///< what the header of llm.c says; bytes if there is none
  Bytes,   ///< text as it is
  Uint16,  ///< numbers of 16 bits, as nanoGPT and llm.c write tokens of GPT-2
  Uint32   ///< numbers of 32 bits, as llm.c writes tokens of Llama 3
};
constexpr auto names_of(TokenKind) { return std::array{"auto", "bytes", "uint16", "uint32"}; }

/// Finds how `file` stores its tokens. With uint16 and uint32, too, a header of llm.c is skipped.
/// It looks at a few pages of the file, so that a wrong format shows before the first step.
/// @param encodes whether a tokenizer will read a text: then it may be lines of JSON
/// @throws UserError for a text with a byte that is 0, tokens that look like text (none of their
///         bytes is 0), a header of llm.c that the file does not fit, or a token that is not below
///         `vocab`
TextFormat find_format(const InputFile& file, TokenKind tokens, int64_t vocab,
                       bool encodes = false);

/// Refuses a token that a model with `vocab` tokens does not know. @throws UserError
void require_token(const InputFile& file, int64_t place, int64_t token, int64_t vocab);

/// The token of `width` bytes that begins at `raw`.
int64_t token_at(const std::byte* raw, int64_t width);

/// out = the tokens of `file` from number `at` on.
/// @throws UserError if the file has changed, cannot be read, or has a token that is not below
///         `vocab`
template <class Id>
void read_tokens(const InputFile& file, const TextFormat& format, int64_t vocab, int64_t at,
                 std::span<Id> out) {
  const auto& [width, header] = format;
  std::vector<std::byte> raw(out.size() * static_cast<size_t>(width));
  file.read(header + at * width, raw);
  for (int64_t i = 0; i < std::ssize(out); ++i) {
    const int64_t token = token_at(raw.data() + i * width, width);
    require_token(file, at + i, token, vocab);
    out[static_cast<size_t>(i)] = static_cast<Id>(token);
  }
}

}  // namespace ladder
