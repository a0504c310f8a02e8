// A text as training data: a file of bytes or of tokens, of which every batch is drawn by counting.
//
// Nothing of it stays in memory: each sequence is read when it is drawn, and the machine keeps in
// its cache what it has room for.
#pragma once

#include <cstdint>
#include <string>

#include "common/data/text_format.h"
#include "common/input_file.h"
#include "kernels/arena.h"
#include "kernels/tensor.h"

namespace ladder {

/// Tokens and what each of them should predict: the next token. I32 (B,T) each.
struct Batch {
  Tensor tokens, targets;

  /// Sequences [begin, begin + count).
  Batch slice(int64_t begin, int64_t count) const {
    return {tokens.slice(begin, count), targets.slice(begin, count)};
  }
};

/// Room for B sequences of T tokens, counted as Activation: 8 B T bytes.
Batch alloc_batch(Arena& arena, int64_t B, int64_t T);

/// Targets that are learned: those that are not kIgnore.
int64_t count_targets(const Batch& batch);

/// The file, and the sequences that it is cut into.
struct TextOptions {
  std::string path;
  TextFormat format = {};
  int64_t seq_len;  ///< T
  int64_t vocab;    ///< V; every token must be below it
};

/// A file of tokens, as batches of sequences.
class Text {
 public:
  /// Opens the file. The last tenth of its tokens is held out for validation.
  /// @throws UserError if the file cannot be read, or if either part is shorter than one sequence
  ///         and its last target
  explicit Text(const TextOptions& options);

  /// Fills `batch` with training sequences. Sequence i of step s starts at a token that depends on
  /// (seed, s, i) alone, so that a rank can draw its share by itself.
  /// @param first index in the global batch of the first sequence to draw
  /// @throws UserError if the file has changed, cannot be read, or has a token that is not below V
  void draw(const Batch& batch, uint64_t seed, int64_t step, int64_t first = 0) const;

  /// Sequences of T tokens of a validation: about 65,536 tokens, evenly spread over the held-out
  /// text, without overlap.
  int64_t validation_count() const;
  /// Fills `batch` with validation sequences first, first + 1, ... @throws UserError as draw()
  void draw_validation(const Batch& batch, int64_t first) const;

 private:
  int64_t held_out_size() const { return size_ - train_size_; }
  void fill_row(const Batch& batch, int64_t i, int64_t at) const;

  TextOptions options_;
  InputFile file_;
  int64_t size_, train_size_;  ///< tokens
};

}  // namespace ladder
