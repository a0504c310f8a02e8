// Bundles in memory: rows of tokens, where documents lie in them, and a loss for each document.
//
// A sum over a batch is a tree over the documents of each bundle, then a tree over bundles. Both
// are one tree if each bundle has the same number of turns, a power of two. Document i of a bundle
// takes turn i of its sum. A turn without a document is an absent leaf, and its loss is -0, which
// added to any x gives x. Three documents in a packed row, and in three unpacked rows, with four
// turns and T = 8:
//
//   packed      a a a b b c c .      turns  [0,3) [3,5) [5,7) -
//   unpacked    a a a . . . . .             [0,3)
//               b b . . . . . .             [8,10)
//               c c . . . . . .             [16,18) -
//
// The target of padding is kIgnore. Without --documents a bundle is a row of the text, as in
// chapter 06: it has one turn, and no borders.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "chapters/26_packing/windows.h"
#include "common/data/text.h"
#include "kernels/documents.h"
#include "kernels/kernels.h"
#include "kernels/transfer.h"

namespace ladder {

/// Some of the bundles of a batch.
struct Bundles {
  Batch rows;                 ///< packed or not: tokens and targets (R,T)
  DocumentBorders documents;  ///< where documents lie in these rows (cu_seqlens)
  Tensor losses;              ///< one for each turn

  int64_t row_count() const { return rows.tokens.dim(0); }  ///< R
};

/// The bundles of a batch, or with ranks (chapter 27) those of one rank.
class BundleBatch {
 public:
  /// @param B bundles; @param micro bundles of a micro-batch; @param T positions of a row
  /// @throws UserError as PackOptions::check_chunks
  BundleBatch(Arena& arena, const PackOptions& options, int64_t B, int64_t micro, int64_t T)
      : options_(options), B_(B), micro_(micro), turns_(turns_of_bundle(options.most(T))) {
    options.check_chunks(T);
    const int64_t rows = B * options.rows(T);
    counts_.rows = rows;  // without --documents nothing is added, and all rows are always in use
    all_ = alloc_batch(arena, rows, T);
    losses_ = arena.shared(Mem::Activation, "losses", Dtype::F32, {B * turns_});
    if (!options.documents) return;
    listed_.resize(static_cast<size_t>(2 * B * turns_));
    // On a GPU these lie in its own memory: each tile of attention reads borders.
    borders_ = arena.alloc(Mem::Activation, "borders", Dtype::I32, {B * turns_, 2});
    position_ = arena.alloc(Mem::Activation, "position", Dtype::I32, {rows, T});
  }
  static int64_t bytes(const PackOptions& options, int64_t B, int64_t T) {
    const int64_t turns = turns_of_bundle(options.most(T)), rows = B * options.rows(T);
    return 8 * rows * T + 4 * B * turns + (options.documents ? 8 * B * turns + 4 * rows * T : 0);
  }

  int64_t size() const { return B_; }
  /// Rows of all bundles, used or not.
  const Batch& rows() const { return all_; }
  /// Counts of the bundles that were added since clear(); without --documents all rows.
  PackCounts counts() const { return counts_; }

  /// Forgets the bundles of the last step. All rows are padding.
  void clear() {
    std::fill_n(all_.tokens.data<int32_t>(), all_.tokens.size(), 0);
    std::fill_n(all_.targets.data<int32_t>(), all_.targets.size(), kIgnore);
    first_row_ = {0};
    counts_ = {};
  }
  /// Adds a bundle of these pieces, in their order. Borders count tokens from the first row of the
  /// micro-batch on: `base` is the first token of that row, which the micro-batch's first bundle
  /// has. (b / micro * micro is the number of that bundle.)
  /// @param file a DocumentFile, or another type with its read()
  template <class File>
  void add(const File& file, const std::vector<Piece>& pieces) {
    const int64_t T = all_.tokens.dim(1), b = std::ssize(first_row_) - 1;
    const int64_t base = first_row_[static_cast<size_t>(b / micro_ * micro_)] * T;
    int32_t* border = listed_.data() + 2 * turns_ * b;
    int64_t row = first_row_.back(), at = row * T;
    for (const Piece& piece : pieces) {
      put(file, piece, at);
      *border++ = static_cast<int32_t>(at - base);
      *border++ = static_cast<int32_t>(at - base + piece.length);
      counts_.add(piece);
      at = options_.unpacked ? ++row * T : at + piece.length;
    }
    const int32_t end = border[-1];  // the turns that are left are empty
    std::fill(border, listed_.data() + 2 * turns_ * (b + 1), end);
    first_row_.push_back(options_.unpacked ? row : row + 1);
    counts_.rows = first_row_.back();
    counts_.padded = counts_.rows * T - counts_.trained;
  }

  /// Bundles [begin, begin + count): a micro-batch, or the first bundles of one. `begin` must be
  /// that of a micro-batch, because borders count from there. Borders and positions are written
  /// where kernels read them.
  Bundles slice(const Ctx& ctx, int64_t begin, int64_t count) const {
    const Tensor losses = losses_.slice(begin * turns_, count * turns_);
    if (!options_.documents) return {all_.slice(begin, count), {}, losses};
    const int64_t first = first_row_[static_cast<size_t>(begin)],
                  row_count = first_row_[static_cast<size_t>(begin + count)] - first;
    DocumentBorders documents{.borders = borders_.slice(begin * turns_, count * turns_),
                              .position = position_.slice(first, row_count),
                              .turns = turns_,
                              .chunk_length = options_.chunk_length};
    const HostCopy borders = HostCopy::to_write(ctx, documents.borders),
                   positions = HostCopy::to_write(ctx, documents.position);
    std::copy_n(listed_.data() + 2 * turns_ * begin, documents.borders.size(),
                borders.tensor().data<int32_t>());
    documents.longest = fill_positions(positions.tensor(), borders.tensor());
    documents.used = turns_in_use(borders.tensor(), turns_);
    borders.send();
    positions.send();
    return {all_.slice(first, row_count), documents, losses};
  }
  /// The losses of all turns.
  Tensor losses() const { return losses_; }

 private:
  /// Writes tokens and targets of a piece, from position `at` of all rows on.
  template <class File>
  void put(const File& file, const Piece& piece, int64_t at) {
    read_.resize(static_cast<size_t>(piece.length + 1));
    file.read(piece.begin, read_);
    // Tokens are all but the last of these, targets all but the first. (Chapter 36 also gives ~t
    // for a token t that is read, but is no target.)
    std::transform(read_.begin(), read_.end() - 1, all_.tokens.data<int32_t>() + at,
                   [](int32_t token) { return token < 0 ? ~token : token; });
    std::transform(read_.begin() + 1, read_.end(), all_.targets.data<int32_t>() + at,
                   [](int32_t token) { return token < 0 ? kIgnore : token; });
  }

  PackOptions options_;
  int64_t B_, micro_, turns_;
  Batch all_;
  Tensor losses_, borders_, position_;
  std::vector<int32_t> listed_;  ///< (B turns,2) borders: add() writes, slice() sends them
  std::vector<int64_t> first_row_{
      0};  ///< of each bundle; the last entry is for the bundle that comes next
  PackCounts counts_;
  std::vector<int32_t> read_;
};

}  // namespace ladder
