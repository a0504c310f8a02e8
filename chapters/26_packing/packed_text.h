// What a step and a validation read: documents in bundles, or without --documents rows of a text as
// chapter 06 draws them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "chapters/26_packing/bundles.h"
#include "common/comm/comm.h"
#include "common/data/text.h"
#include "common/model/measure.h"
#include "common/run/ending.h"
#include "common/run/log.h"
#include "kernels/transfer.h"

namespace ladder {

class PackedText {
 public:
  /// @throws UserError as Text and DocumentWindows do
  PackedText(const TextOptions& text, const PackOptions& options, const HeldOut& held_out = {}) {
    if (options.documents)
      windows_.emplace(text, options, held_out);
    else
      text_.emplace(text);
  }

  /// Fills the batch with the next bundles, and moves `place` behind them. Without --documents
  /// `seed` and `step` choose the rows.
  void draw(BundleBatch& batch, RowCursor& place, uint64_t seed, int64_t step) {
    draw(batch, place, seed, step, numbers_in({0, batch.size()}), batch.size());
  }
  /// For chapter 27: the same on one of several ranks. Of the `all` bundles of the step, this
  /// rank's batch gets those whose numbers are `own`, ascending; `place` moves behind all of them.
  void draw(BundleBatch& batch, RowCursor& place, uint64_t seed, int64_t step,
            const std::vector<int64_t>& own, int64_t all) {
    if (text_) {
      for (int64_t i = 0; i < std::ssize(own); ++i)
        text_->draw(batch.rows().slice(i, 1), seed, step, own[static_cast<size_t>(i)]);
      return;
    }
    batch.clear();
    drawn_.clear();
    for (int64_t b = 0; b < all; ++b) {
      const std::vector<Piece> pieces = windows_->next(place);
      // The rank with bundle 0 is the one that counts.
      if (own.front() == 0) drawn_.insert(drawn_.end(), pieces.begin(), pieces.end());
      if (std::ranges::binary_search(own, b)) batch.add(windows_->file(), pieces);
    }
  }

  /// How many bundles a validation takes. They have about HeldOut::targets, or all there are.
  int64_t validation_count() const {
    return text_ ? text_->validation_count() : windows_->held_out().size();
  }
  /// Fills validation bundles [first, first + count).
  void draw_validation(BundleBatch& batch, int64_t first, int64_t count) const {
    if (text_) return text_->draw_validation(batch.rows().slice(0, count), first);
    batch.clear();
    for (int64_t b = first; b < first + count; ++b)
      batch.add(windows_->file(), windows_->held_out().row(b));
  }

  /// For bits per byte: counts targets and their bytes on rank 0, those of the last step (of all
  /// ranks) and those of a validation. Without --documents it is empty, and Log counts.
  LossTargets targets() const {
    if (text_) return {};
    return {[this](int64_t, int64_t) { return windows_->count_targets(drawn_); },
            [this] { return windows_->count_targets(windows_->held_out().pieces); }};
  }

 private:
  std::vector<Piece> drawn_;  ///< of all ranks in the last step; empty without bundle 0
  std::optional<Text> text_;
  std::optional<DocumentWindows> windows_;
};

/// Validation in bundles, as Validation (common/run/validation.h) has it in sequences:
///
///   BundleValidation v(ctx, text, batch, each);
///   while (v.next()) ... v.bundles().losses ...
///   v.mean();
///
/// Skip what is about ranks until chapter 27. Ranks split the bundles. A rank that has none left
/// gets one that does not count: others may need its part of the forward pass, as where ranks hold
/// shards of the weights (chapter 10).
class BundleValidation {
 public:
  /// @param each bundles at a time, at most those of a micro-batch
  /// @param losses of all ranks' `each` bundles, turn by turn; null where there are no ranks
  /// @param comm ranks that split the bundles; null: this rank has all of them
  BundleValidation(const Ctx& ctx, const PackedText& text, BundleBatch& batch, int64_t each,
                   Tensor losses = {}, Comm* comm = nullptr)
      : ctx_(ctx),
        text_(text),
        batch_(batch),
        each_(each),
        comm_(comm),
        own_(batch.losses().first(batch.losses().size() / batch.size() * each)),
        losses_(comm ? losses.first(own_.size() * comm->size()) : own_) {}

  /// @return false if all bundles are done, or if a signal has stopped the run
  bool next() {
    if (stopping()) return false;
    const int64_t ranks = comm_ ? comm_->size() : 1, all = text_.validation_count();
    if (begin_ >= 0) end_round();
    begin_ = begin_ < 0 ? 0 : begin_ + ranks * each_;
    if (begin_ >= all) return false;
    const int64_t first = begin_ + (comm_ ? comm_->rank() * each_ : 0);
    counting_ = std::clamp<int64_t>(all - first, 0, each_);
    const int64_t count = std::max<int64_t>(1, counting_);
    text_.draw_validation(batch_, counting_ > 0 ? first : 0, count);
    bundles_ = batch_.slice(ctx_, 0, count);
    if (counting_ > 0) targets_ += count_targets(bundles_.rows);
    return true;
  }
  const Bundles& bundles() const { return bundles_; }

  /// The mean over all targets. All ranks call it.
  float mean() const {
    int64_t targets = targets_;
    if (comm_) comm_->all_reduce({.ptr = &targets, .dtype = Dtype::I64, .shape = {1}});
    return static_cast<float>(sum_ / static_cast<double>(targets));
  }

 private:
  /// Losses in the order of bundles, whichever rank has which.
  void end_round() {
    const int64_t turns = own_.size() / each_;
    zero(ctx_, own_.slice(counting_ * turns, (each_ - counting_) * turns));
    if (comm_) comm_->all_gather(losses_, own_);
    sum_ += total_loss(ctx_, losses_);
  }

  const Ctx& ctx_;
  const PackedText& text_;
  BundleBatch& batch_;
  int64_t each_;
  Comm* comm_;
  Tensor own_, losses_;
  int64_t begin_ = -1;    ///< the first bundle of this round, over all ranks; -1: none yet
  int64_t counting_ = 0;  ///< how many of this rank's bundles count
  int64_t targets_ = 0;
  Bundles bundles_;
  double sum_ = 0;
};

/// Prints what packing has done in all steps of this run, and puts it into --report.
/// @param T tokens of a row
inline void report_packing(Log& log, const PackCounts& all, int64_t T) {
  if (all.pieces == 0) return;
  const int64_t pairs = all.rows * (T * (T + 1) / 2);
  const auto share = [](int64_t part, int64_t of) {
    return 100.0 * static_cast<double>(part) / static_cast<double>(of);
  };
  log.note(
      fmt::format("{} documents or pieces of them in {} rows: {} positions trained ({:.1f}%), {} "
                  "of them cut off from the "
                  "beginning of their document; {} padded; {:.1f}% of the pairs of whole rows",
                  all.pieces, all.rows, all.trained, share(all.trained, all.rows * T), all.cut,
                  all.padded, share(all.pairs, pairs)));
  log.extra()["packing"] = {
      {"pieces", all.pieces}, {"rows", all.rows},   {"trained", all.trained}, {"cut", all.cut},
      {"padded", all.padded}, {"pairs", all.pairs}, {"pairs_of_rows", pairs}};
}

}  // namespace ladder
