// --documents: which documents share a row, and where in the row each of them lies.
//
// A document of n + 1 tokens has n positions: position i reads token i and learns token i + 1. A
// document of one token has none. If n is more than T, the document is cut every T positions. A
// later piece first reads the last target of the piece before, so no target is lost. To the model a
// piece is a document of its own: its positions are numbered from 0, and it sees no other piece.
//
//   tokens     a b c d e f g      T = 4: two pieces
//   piece 0    a b c d            learns b c d e
//   piece 1            e f        learns f g
//
// A window of consecutive documents is packed at a time. `ffd`, first fit decreasing, takes pieces
// from the longest to the shortest; of equal ones the lower number is first. It puts each into the
// first row that has room. `greedy` takes pieces in their order, and begins a new row when a piece
// does not fit. Then the pieces of a row are sorted by number, and rows by their first piece.
// Otherwise long documents would come first in each window.
//
// The pieces of a row are a bundle. `--unpacked` runs the same bundle with one piece a row. Packed
// rows must have the same bits, and cost less.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "common/error.h"
#include "common/names.h"
#include "common/run/command_line.h"
#include "kernels/tree.h"

namespace ladder {

enum class Pack : uint8_t { Ffd, Greedy };
constexpr auto names_of(Pack) { return std::array{"ffd", "greedy"}; }

struct PackOptions {
  bool documents = false;
  std::optional<int64_t> end_of_text;  ///< none: the index says where documents end
  Pack pack = Pack::Ffd;
  bool unpacked = false;
  int64_t window = 1024;       ///< documents
  int64_t row_documents = 64;  ///< M
  int64_t chunk_length = 0;    ///< see --chunk-length; 0 unless chapter 31's bits are wanted

  void add_to(CommandLine& line) {
    line.group("26_packing");
    line.add("--documents", documents,
             "--data holds documents, which end where its .idx or --end-of-text says; --batch "
             "counts bundles: the documents of a packed row, also where each has its own row");
    line.add("--end-of-text", end_of_text, "the token that ends a document",
             {.shown_default = "what the .idx says"});
    line.add("--pack", pack, "first fit decreasing, or greedy: one after the other");
    line.add("--unpacked", unpacked, "the same bundles with one document a row");
    line.add("--pack-window", window, "consecutive documents that are packed together");
    line.add("--row-documents", row_documents, "documents of a row at most");
    line.add("--chunk-length", chunk_length,
             "the window that cuts attention's keys into chunks, so that a document has the bits "
             "that it has alone there (chapter 31); 0: its own length");
  }

  /// @throws UserError
  void check() const {
    require_range("--pack-window", window, 1, 1 << 16);
    require_range("--row-documents", row_documents, 1, 1 << 16);
    const PackOptions none;
    for (const auto& [given, flag] : {std::pair{unpacked, "--unpacked"},
                                      {end_of_text.has_value(), "--end-of-text"},
                                      {pack != none.pack, "--pack"},
                                      {window != none.window, "--pack-window"},
                                      {row_documents != none.row_documents, "--row-documents"},
                                      {chunk_length != 0, "--chunk-length"}})
      if (given && !documents) throw UserError("{} needs --documents", flag);
  }

  /// @param T tokens of a row, which a document may fill
  /// @throws UserError
  void check_chunks(int64_t T) const {
    if (chunk_length != 0 && (chunk_length < T || chunk_length > 1 << 30))
      throw UserError("--chunk-length must be 0 or from {} (--seq-len) to {}, not {}", T, 1 << 30,
                      chunk_length);
  }

  /// M: how many documents a bundle may have, for rows of T tokens.
  int64_t most(int64_t T) const { return documents ? std::min(row_documents, T) : 1; }
  /// How many rows of memory a bundle takes.
  int64_t rows(int64_t T) const { return unpacked ? most(T) : 1; }
};

/// A piece of a document, or a whole one: position i reads token begin + i of the file.
struct Piece {
  int64_t begin = 0;
  int64_t length = 0;  ///< L, positions
  bool later = false;  ///< not the first piece of its document
};

/// Adds the pieces of a document with these tokens.
inline void cut(Range document, int64_t T, std::vector<Piece>& pieces) {
  for (int64_t at = document.begin; at + 1 < document.end; at += T)
    pieces.push_back({at, std::min(T, document.end - 1 - at), at > document.begin});
}

/// The pieces of each row, by their numbers.
using RowPlan = std::vector<std::vector<int64_t>>;

/// Rows for pieces of these lengths, each at most T.
/// @param M the most pieces of a row
inline RowPlan plan_rows(std::span<const int64_t> lengths, int64_t T, int64_t M, Pack pack) {
  const auto length = [&](int64_t i) { return lengths[static_cast<size_t>(i)]; };
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  if (pack == Pack::Ffd)
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return length(a) > length(b); });

  RowPlan rows;
  std::vector<int64_t> room;  // of each row; a row with M pieces has none
  for (const int64_t piece : order) {
    // ffd looks for room in all rows, greedy in the last one.
    const size_t first = pack == Pack::Ffd || rows.empty() ? 0 : rows.size() - 1;
    size_t row = first;
    while (row < rows.size() && room[row] < length(piece)) ++row;
    if (row == rows.size()) {
      rows.emplace_back();
      room.push_back(T);
    }
    rows[row].push_back(piece);
    room[row] = std::ssize(rows[row]) == M ? 0 : room[row] - length(piece);
  }
  for (std::vector<int64_t>& row : rows) std::ranges::sort(row);
  std::ranges::sort(rows);
  return rows;
}

/// What packing makes of documents: positions, and pairs of a query and a key that it sees.
struct PackCounts {
  int64_t rows = 0, pieces = 0;
  int64_t trained = 0;  ///< positions with a target
  int64_t padded = 0;   ///< the other positions of the rows
  int64_t cut = 0;      ///< trained positions of later pieces
  int64_t pairs = 0;    ///< sum of n (n + 1) / 2

  void add(const Piece& piece) {
    ++pieces;
    trained += piece.length;
    cut += piece.later ? piece.length : 0;
    pairs += piece.length * (piece.length + 1) / 2;
  }
  /// Adds each of the six.
  void operator+=(const PackCounts& more) {
    for (const auto count : {&PackCounts::rows, &PackCounts::pieces, &PackCounts::trained,
                             &PackCounts::padded, &PackCounts::cut, &PackCounts::pairs})
      this->*count += more.*count;
  }
};

}  // namespace ladder
