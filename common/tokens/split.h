// How a text is cut into pieces before any merge: no token crosses the end of a piece.
//
// The three patterns are regular expressions in their authors' programs. Here they are state
// machines: one look at the next characters decides, because no alternative of them ever has to go
// back by more than a character.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/names.h"

namespace ladder {

/// The pattern of a family of tokenizers.
enum class Split : uint8_t {
  Gpt2,    ///< 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
  Llama3,  ///< also 'S with capitals; any one character before letters; at most three digits
  Cl100k   ///< as Llama3, but white space at the end of a text is one piece
};
constexpr auto names_of(Split) { return std::array{"gpt2", "llama3", "cl100k"}; }

/// The end of the piece that begins at `begin`, which is below the size of the text.
size_t piece_end(Split split, std::string_view text, size_t begin);

/// The last place where `text` can be cut in two without changing its pieces, whatever text
/// follows. 0: there is none.
size_t last_cut(std::string_view text);

}  // namespace ladder
