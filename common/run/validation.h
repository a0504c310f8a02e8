// Validation: the mean loss of held-out text, without knowing the model.
#pragma once

#include "common/comm/comm.h"
#include "common/data/text.h"
#include "kernels/context.h"

namespace ladder {

/// The forward pass stays with the caller:
///
///   Validation v(ctx, comm, text, buffer, losses, each);
///   while (v.next()) {
///     ... v.losses() (n), each the sum over one sequence of v.batch() (n,T) ...
///   }
///   v.mean();
///
/// Ranks share the sequences. One that has none left gets a sequence that does not count: the
/// others may need its part of the forward pass.
class Validation {
 public:
  /// @param comm   ranks with other sequences; null: this rank has all
  /// @param buffer room for `each` sequences (each,T), at least
  /// @param losses room for the losses of as many of every rank (N each), at least
  /// @param each   sequences at a time on one rank
  Validation(const Ctx& ctx, Comm* comm, const Text& text, const Batch& buffer, Tensor losses,
             int64_t each);

  /// Draws the next batch. @return false when all sequences are done, or a signal has stopped the
  /// run: then there is no mean
  bool next();
  Batch batch() const { return buffer_.slice(0, count_); }
  Tensor losses() const { return own().first(count_); }
  int64_t count() const { return count_; }  ///< n, sequences of this batch

  /// Mean over all targets.
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
  int64_t begin_ = -1;  ///< the first sequence of this round, of all ranks; -1: none yet
  int64_t count_ = 0;
  int64_t counting_ = 0;  ///< of count_, those that count
  double sum_ = 0;
};

}  // namespace ladder
