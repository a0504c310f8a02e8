// Validation: the mean loss on held-out text, without knowing the model.
#pragma once

#include "common/data/text.h"
#include "kernels/context.h"

namespace ladder {

class Comm;

/// The forward pass stays with the caller:
///
///   Validation v(ctx, comm, text, buffer, losses, each);
///   while (v.next()) {
///     ... v.losses() (n), each the sum over one sequence of v.batch() (n,T) ...
///   }
///   v.mean();
///
/// Ranks split the sequences. A rank that has none left gets a sequence that does not count,
/// because other ranks may need its part of the forward pass.
class Validation {
 public:
  /// @param comm   ranks with other sequences; null: this rank has all sequences
  /// @param buffer room for at least `each` sequences (each,T)
  /// @param losses room for at least `each` losses of every rank (N each)
  /// @param each   how many sequences a rank takes at a time
  Validation(const Ctx& ctx, Comm* comm, const Text& text, const Batch& buffer, Tensor losses,
             int64_t each);

  /// Draws the next batch. @return false if all sequences are done, or if a signal has stopped the
  /// run; then there is no mean
  bool next();
  Batch batch() const { return buffer_.slice(0, count_); }
  Tensor losses() const { return own().first(count_); }
  int64_t count() const { return count_; }  ///< n, sequences of this batch

  /// The mean over all targets.
  float mean() const;

 private:
  Tensor own() const { return losses_.slice(rank_ * each_, each_); }
  void end_round();

  const Ctx& ctx_;
  Comm* comm_;
  const Text& text_;
  Batch buffer_;
  int64_t each_, ranks_, rank_;
  Tensor losses_;       ///< (N each)
  int64_t begin_ = -1;  ///< the first sequence of this round, over all ranks; -1: none yet
  int64_t count_ = 0;
  int64_t counting_ = 0;  ///< how many of count_ count
  double sum_ = 0;
};

}  // namespace ladder
