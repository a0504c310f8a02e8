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

inline constexpr const char* kEndOfText = "<|endoftext|>";

struct Tokenizer {
  Split split = Split::Gpt2;
  bool whole_words = false;         ///< a piece that is a token needs no merges ("ignore_merges")
  std::vector<std::string> tokens;  ///< bytes of each id; empty: no token has this id
  std::vector<Merge> merges;        ///< ascending by rank
  std::map<std::string, uint32_t> special;  ///< tokens that only allow_special makes of a text
  std::optional<uint32_t> end_of_text;      ///< the special token that ends a document

  int64_t vocab() const { return static_cast<int64_t>(tokens.size()); }
  bool is_special(uint32_t id) const {
    const auto at = special.find(tokens[id]);
    return at != special.end() && at->second == id;
  }
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
