// Tokenizer: a byte-level BPE tokenizer, whatever kind of file it was read from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/tokens/split.h"

namespace ladder {

/// Two neighbors become one token.
struct Merge {
  uint32_t left, right, result;
  uint32_t rank;  ///< the lowest comes first; several merges from a file of ranks may share one
};

/// A token that a text spells, such as <|endoftext|> or a run of blanks. It is found before the
/// text is cut into pieces.
struct AddedToken {
  uint32_t id;
  bool special = true;      ///< found in a text only with allow_special; decode() may drop it
  bool normalized = false;  ///< looked for after the others, in what they leave

  bool operator==(const AddedToken&) const = default;
};

inline constexpr const char* kEndOfText = "<|endoftext|>";

struct Tokenizer {
  Split split = Split::Gpt2;
  bool whole_words = false;         ///< a piece that is a token needs no merges ("ignore_merges")
  std::vector<std::string> tokens;  ///< bytes of each id; empty: no token has this id
  std::vector<Merge> merges;        ///< ascending by rank
  std::map<std::string, AddedToken> added;
  std::optional<uint32_t> end_of_text;  ///< the special token that ends a document

  int64_t vocab() const { return static_cast<int64_t>(tokens.size()); }
  /// The token of this id, if it is an added one; otherwise null.
  const AddedToken* added_token(uint32_t id) const {
    const auto at = added.find(tokens[id]);
    return at != added.end() && at->second.id == id ? &at->second : nullptr;
  }
  bool is_special(uint32_t id) const {
    const AddedToken* token = added_token(id);
    return token && token->special;
  }
  /// Makes a token special, and the one that ends a document.
  /// @throws UserError if there is none, or if merges can make it of a text
  void end_texts_with(int64_t id);
};

/// How many bytes of a text each id stands for; 0 for special tokens.
std::vector<int32_t> token_bytes(const Tokenizer& tokenizer);

/// 16 hexadecimal digits. They differ if two tokenizers could encode a text differently.
std::string fingerprint(const Tokenizer& tokenizer);

/// The id of each byte. @throws UserError if one is missing
std::vector<uint32_t> byte_ids(const Tokenizer& tokenizer);

/// GPT-2's files show each byte as a printable character. '!' to '~' and most of Latin-1 stand for
/// themselves; the other 68 bytes are the characters from U+0100 on. So a blank is Ġ.
std::string to_alphabet(std::string_view bytes);
/// The reverse. nullopt if a character stands for no byte.
std::optional<std::string> from_alphabet(std::string_view text);
/// All bytes in the order of these characters; '!' is the first.
std::string alphabet();

}  // namespace ladder
