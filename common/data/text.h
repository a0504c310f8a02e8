// A text as training data: a file of bytes or tokens. Counter-based random numbers draw every
// batch.
//
// The text is not kept in memory. A sequence is read when it is drawn, and the system caches as
// much as it has room for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/input_file.h"
#include "common/text_format.h"
#include "kernels/arena.h"
#include "kernels/tensor.h"

namespace ladder {

/// Tokens, and for each its target: the next token. I32 (B,T) each.
struct Batch {
  Tensor tokens, targets;

  /// The sequences [begin, begin + count).
  Batch slice(int64_t begin, int64_t count) const {
    return {tokens.slice(begin, count), targets.slice(begin, count)};
  }
};

/// Allocates B sequences of T tokens, counted as Activation: 8 B T bytes.
Batch alloc_batch(Arena& arena, int64_t B, int64_t T);

/// How many targets are learned: those that are not kIgnore.
int64_t count_targets(const Batch& batch);

/// What a loss is a mean over: targets, and the bytes of the text that they stand for.
struct TargetCount {
  int64_t targets = 0;
  int64_t bytes = 0;  ///< 0: not known

  TargetCount& operator+=(const TargetCount& other) {
    targets += other.targets;
    bytes += other.bytes;
    return *this;
  }
};

/// Counts the targets of a loss, and their bytes. `tokens` are those of the step's whole batch.
struct LossTargets {
  std::function<TargetCount(int64_t step, int64_t tokens)> of_step;  ///< of the step's whole batch
  std::function<TargetCount()> of_validation;
};

/// The bits that a model with this loss, in nats a target, takes for a byte of the text. Losses of
/// different tokenizers cannot be compared; this can. 0: not known.
double bits_per_byte(double loss, const TargetCount& over);

/// A text as tokens of a tokenizer, in memory.
struct EncodedText {
  int64_t width = 2;             ///< bytes of a token, as in TextFormat
  std::vector<std::byte> bytes;  ///< of all tokens
  std::vector<int64_t> ends;     ///< of documents, in tokens
  /// Whether each token is learned where it is a target (chapter 36); empty: all are.
  std::vector<bool> learned = {};
};

/// A file, and the length of the sequences that it is cut into.
struct TextOptions {
  std::string path;
  TextFormat format = {};
  int64_t seq_len;              ///< T
  int64_t vocab;                ///< V; every token must be below it
  std::string flag = "--data";  ///< the flag that gave the path, for messages
  /// How many bytes of the text each token stands for. Null: one each if tokens are bytes; else it
  /// is not known.
  std::shared_ptr<const std::vector<int32_t>> token_bytes = nullptr;
  std::shared_ptr<const EncodedText> encoded = nullptr;  ///< what the file holds, as tokens

  /// The open file, or the tokens of `encoded` as one; null: open() opens `path`.
  std::shared_ptr<const InputFile> file = nullptr;

  /// @throws UserError as InputFile does
  std::shared_ptr<const InputFile> open() const;

  /// Counts targets, and the bytes that they stand for.
  /// @param read returns the token before them, and the targets; called only if the tokens matter
  TargetCount count(int64_t targets, const std::function<std::vector<int32_t>()>& read) const;
};

/// A file of tokens that gives batches of sequences.
class Text {
 public:
  /// Opens the file. The last tenth of its tokens is held out for validation.
  /// @throws UserError if the file cannot be read, or if one of its two parts is shorter than T + 1
  /// tokens
  explicit Text(const TextOptions& options);

  /// Fills `batch` with training sequences. Sequence i of step s starts at a token that depends on
  /// (seed, s, i) alone, so that a rank can draw its share by itself.
  /// @param first index in the global batch of the first sequence to draw
  /// @throws UserError if the file has changed, cannot be read, or has a token that is not below V
  void draw(const Batch& batch, uint64_t seed, int64_t step, int64_t first = 0) const;

  /// How many sequences of T tokens a validation takes. They have about 65,536 tokens, do not
  /// overlap, and are spread evenly over the held-out text.
  int64_t validation_count() const;
  /// Fills `batch` with validation sequences first, first + 1, ... @throws UserError as draw() does
  void draw_validation(const Batch& batch, int64_t first) const;

  /// The targets of the sequences 0 to count - 1 of a step, and of the whole validation.
  /// @throws UserError as draw() does
  TargetCount step_targets(uint64_t seed, int64_t step, int64_t count) const;
  TargetCount validation_targets() const;

 private:
  int64_t held_out_size() const { return size_ - train_size_; }
  /// Where in the file the sequences of a step and of the validation begin.
  int64_t step_start(uint64_t seed, int64_t step, int64_t sequence) const;
  int64_t validation_start(int64_t sequence) const;
  std::vector<int32_t> read_row(int64_t at) const;
  void fill_row(const Batch& batch, int64_t i, int64_t at) const;
  template <class Start>
  TargetCount count_rows(int64_t count, Start&& start) const;

  TextOptions options_;
  std::shared_ptr<const InputFile> file_;
  int64_t size_, train_size_;  ///< tokens
};

}  // namespace ladder
