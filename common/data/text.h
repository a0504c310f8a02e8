// A text file as training data: a byte is a token, and every batch is drawn by counting.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/arena.h"
#include "kernels/tensor.h"

namespace ladder {

/// Tokens and what each of them should predict: the next byte. I32 (B,T) each.
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

class Text {
 public:
  /// Reads a whole file. The last tenth is held out for validation.
  /// @throws UserError if the file cannot be read, does not fit in memory, or if either part is
  ///         shorter than one sequence of seq_len tokens and its last target
  Text(const std::string& path, int64_t seq_len);

  std::span<const uint8_t> train() const { return std::span(bytes_).first(train_size_); }
  std::span<const uint8_t> held_out() const { return std::span(bytes_).subspan(train_size_); }

  /// Fills `batch` with training sequences. Sequence i of step s starts at a byte that depends on
  /// (seed, s, i) alone, so that a rank can draw its share by itself.
  /// @param first index in the global batch of the first sequence to draw
  void draw(const Batch& batch, uint64_t seed, int64_t step, int64_t first = 0) const;

  /// Sequences of T tokens of a validation: about 65,536 tokens, evenly spread over the held-out
  /// text, without overlap.
  int64_t validation_count() const;
  /// Fills `batch` with validation sequences first, first + 1, ...
  void draw_validation(const Batch& batch, int64_t first) const;

 private:
  int64_t seq_len_;
  std::vector<uint8_t> bytes_;
  size_t train_size_;
};

}  // namespace ladder
