// Sampler: text from a model, without knowing the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/random.h"
#include "kernels/arena.h"
#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ladder {

/// How text is generated.
struct SampleOptions {
  int64_t count;       ///< tokens to generate
  double temperature;  ///< logits are divided by it; 0: always the largest logit
  int64_t top_k;       ///< only the k largest logits take part; 0: all
  uint64_t seed;
  int64_t seq_len;    ///< T
  int64_t vocab;      ///< tokens that take part: V, or the 256 that are bytes
  bool bytes = true;  ///< a token is a byte
};

/// The forward pass stays with the caller:
///
///   Sampler sampler(options);
///   while (sampler.next(tokens)) {   // tokens (1,T) I32
///     ... logits (1,T,Vp) from tokens ...
///     sampler.choose(ctx, logits);
///   }
///   sampler.text();
///
/// The text starts after a newline, or where tokens are no bytes after the last of them, which of
/// GPT-2 is <|endoftext|>. Once T tokens are there, the window slides.
/// Equal logits: the smaller token counts as the larger logit, in greedy choice and at the edge
/// of top-k alike, so that exactly k tokens take part. NaN counts as the smallest logit.
/// Token i of a text depends on (seed, i) and the logits alone.
class Sampler {
 public:
  explicit Sampler(const SampleOptions& options);

  /// Fills `tokens` with the window, zeros behind it (attention is causal: they change nothing).
  /// @return false, without filling, when the text is complete, or a signal has stopped the run
  bool next(Tensor tokens) const;

  /// Draws the next token from the logits behind the window's last token.
  void choose(const Ctx& ctx, Tensor logits);
  /// The same where a rank has n columns of the logits (1,T,n): room for a row of all columns
  /// (1,1,Vp), what this rank has of the row to draw from (1,1,n), and drawing from all of it.
  static Tensor alloc_row(Arena& arena, Dtype dtype, const GptConfig& gpt) {
    return arena.alloc(Mem::Workspace, "row", dtype, {1, 1, gpt.padded_vocab});
  }
  Tensor last_row(Tensor logits) const;
  /// The token, of T, that this row belongs to, for a rank that holds only some tokens.
  int64_t last() const { return window() - 1; }
  void choose_from(const Ctx& ctx, Tensor row);

  /// What has been generated: bytes as they are, other tokens as numbers between blanks.
  std::string text() const;

 private:
  int64_t window() const;
  std::vector<int32_t> candidates(const float* logits) const;
  int32_t draw(const float* logits) const;

  SampleOptions options_;
  Random random_;
  std::vector<int32_t> tokens_;  ///< what it starts after, then the text
};

}  // namespace ladder
