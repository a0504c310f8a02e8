// GptConfig: the sizes of a model, and the presets by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ladder {

/// Sizes of a GPT-2 style model: pre-layer-norm blocks, GELU, learned positions. The MLP is four
/// times as wide as the residual stream.
struct GptConfig {
  std::string name;
  int64_t layers;          ///< L
  int64_t heads;           ///< NH
  int64_t channels;        ///< C
  int64_t seq_len;         ///< T, tokens of a training sequence
  int64_t positions;       ///< rows of the position embedding; T may be shorter
  int64_t vocab;           ///< V, tokens that exist
  int64_t padded_vocab;    ///< Vp, rows of embedding and head; those from V on stay zero
  bool tied_head = false;  ///< the head's weights are the token embedding

  /// @throws UserError if a size is not positive, heads do not divide channels, or
  ///         seq_len exceeds positions.
  void check() const;
};

/// Rows of embedding and head for a vocabulary: the next multiple of 128 (GPT-2: 50,304).
int64_t padded(int64_t vocab);

/// Names of all presets, smallest first.
std::vector<std::string> preset_names();

/// The preset of that name. @throws UserError naming the legal ones.
GptConfig preset(std::string_view name);

}  // namespace ladder
