// What a step and a validation read: documents in bundles, or without --documents rows of a text as
// chapter 06 draws them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "chapters/26_packing/bundles.h"
#include "common/comm/comm.h"
#include "common/data/text.h"
#include "common/model/measure.h"
#include "common/run/ending.h"
#include "common/run/log.h"

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
    draw(batch, place, seed, step, 0, batch.size());
  }
  /// For chapter 27: the same on one of several ranks. Of the `all` bundles of the step, this
  /// rank's batch gets those from `first` on; `place` moves behind all of them.
  void draw(BundleBatch& batch, RowCursor& place, uint64_t seed, int64_t step, int64_t first,
            int64_t all) {
    if (text_) return text_->draw(batch.rows(), seed, step, first);
    batch.clear();
    drawn_.clear();
    for (int64_t b = 0; b < all; ++b) {
      const std::vector<Piece> pieces = windows_->next(place);
      if (first == 0) drawn_.insert(drawn_.end(), pieces.begin(), pieces.end());
      if (b >= first && b < first + batch.size()) batch.add(windows_->file(), pieces);
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

  /// For bits per byte, which documents need their own count for: counts targets and their bytes on
  /// rank 0, in the last step (of all ranks) and in a validation. Without --documents it is empty,
  /// and Log counts.
  LossTargets targets() const {
    if (text_) return {};
    return {[this](int64_t, int64_t) { return windows_->count_targets(drawn_); },
            [this] { return windows_->count_targets(windows_->held_out().pieces); }};
  }

 private:
  std::vector<Piece> drawn_;  ///< by the last step; on the rank with the first bundles, all
  std::optional<Text> text_;
  std::optional<DocumentWindows> windows_;
};

/// Validation in bundles, as Validation (common/run/validation.h) has it in sequences:
///
///   BundleValidation v(ctx, text, batch, each);
///   while (v.next()) ... v.bundles().losses ...
///   v.mean();
class BundleValidation {
 public:
  /// @param each bundles at a time, at most those of a micro-batch
  /// @param comm ranks that split the bundles; null: this rank has all of them
  BundleValidation(const Ctx& ctx, const PackedText& text, BundleBatch& batch, int64_t each,
                   Comm* comm = nullptr)
      : ctx_(ctx),
        text_(text),
        batch_(batch),
        each_(each),
        comm_(comm),
        begin_(comm ? comm->rank() * each : 0) {}

  /// @return false if all bundles are done, or if a signal has stopped the run
  bool next() {
    if (stopping()) return false;
    if (bundles_.losses) sum_ += total_loss(ctx_, bundles_.losses);
    const int64_t count = std::min(each_, text_.validation_count() - begin_);
    if (count <= 0) return false;
    text_.draw_validation(batch_, begin_, count);
    bundles_ = batch_.slice(0, count);
    targets_ += count_targets(bundles_.rows);
    begin_ += each_ * (comm_ ? comm_->size() : 1);
    return true;
  }
  const Bundles& bundles() const { return bundles_; }

  /// The mean over all targets. All ranks call it.
  float mean() const {
    return static_cast<float>(over_ranks(sum_) / over_ranks(static_cast<double>(targets_)));
  }

 private:
  double over_ranks(double x) const {
    if (!comm_) return x;
    std::vector<double> all(static_cast<size_t>(comm_->size()));
    comm_->all_gather({.ptr = all.data(), .dtype = Dtype::F64, .shape = {comm_->size()}},
                      {.ptr = &x, .dtype = Dtype::F64, .shape = {1}});
    return std::accumulate(all.begin(), all.end(), 0.0);
  }

  const Ctx& ctx_;
  const PackedText& text_;
  BundleBatch& batch_;
  int64_t each_;
  Comm* comm_;
  int64_t begin_, targets_ = 0;
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
