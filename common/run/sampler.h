// Sampler: generates text from a model, without knowing the model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/arena.h"
#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ladder {

struct Tokenizer;

/// How text is generated.
struct SampleOptions {
  int64_t count;       ///< tokens to generate
  double temperature;  ///< logits are divided by it; 0: always takes the largest logit
  int64_t top_k;       ///< only the k largest logits count; 0: all
  uint64_t seed;
  int64_t seq_len;    ///< T
  int64_t vocab;      ///< tokens that may be chosen: V, or the 256 that are bytes
  bool bytes = true;  ///< a token is a byte
  /// Of tokens that are no bytes; null: not known.
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
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
/// The text starts after a newline. If tokens are no bytes, it starts after the tokenizer's end of
/// text, or after the last token of the vocabulary, which is <|endoftext|> for GPT-2. When there
/// are T tokens, the window slides. Of equal logits, that of the smaller token counts as larger, in
/// the greedy choice and at the edge of top-k. So exactly k tokens take part. NaN counts as the
/// smallest logit. Token i of a text depends only on (seed, i) and the logits.
class Sampler {
 public:
  explicit Sampler(const SampleOptions& options);

  /// Fills `tokens` with the window, and with zeros after it. (Attention is causal, so zeros change
  /// nothing.)
  /// @return false, without filling, if the text is complete or a signal has stopped the run
  bool next(Tensor tokens) const;

  /// Draws the next token from the logits of the window's last token.
  void choose(const Ctx& ctx, Tensor logits);

  /// The generated text. Without a tokenizer, tokens that are no bytes are numbers separated by
  /// blanks.
  std::string text() const;

 private:
  int64_t window() const;
  std::vector<int32_t> candidates(const float* logits) const;
  int32_t draw(const float* logits) const;

  SampleOptions options_;
  std::vector<int32_t> tokens_;  ///< the token that the text starts after, then the text
};

}  // namespace ladder
