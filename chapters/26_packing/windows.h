// Rows of documents from a file, window by window.
//
// A window is --pack-window consecutive documents. The last tenth of the documents is held out for
// validation, or all of them where another file trains (chapter 27). The others are windows 0, 1,
// ... in the order of the file. At its end they begin again, and their numbers go on. A step may
// begin in the middle of a window. So all that it needs is the number of a window and that of a row
// in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/26_packing/plan.h"
#include "common/data/document_file.h"
#include "common/error.h"
#include "common/save/manifest.h"

namespace ladder {

/// A cursor: where the next row is. A checkpoint holds it.
class RowCursor {
 public:
  /// @param T tokens of a row
  RowCursor(const PackOptions& options, int64_t T)
      : on_(options.documents),
        end_of_text_(options.end_of_text ? nlohmann::json(*options.end_of_text) : nullptr),
        plan_(fmt::format("--pack {} --pack-window {} --row-documents {} --seq-len {}",
                          to_string(options.pack), options.window, options.most(T), T)) {}

  int64_t window = 0;  ///< its number goes on at the end of the file
  int64_t row = 0;     ///< in the window

  /// What the next step needs from a checkpoint. It is null without documents.
  nlohmann::json state() const {
    if (!on_) return nullptr;
    return {{"window", window}, {"row", row}, {"plan", plan_}, {"end_of_text", end_of_text_}};
  }
  /// @throws UserError if the rows would be others
  void set_state(const nlohmann::json& state) {
    if (on_ == state.is_null())
      throw UserError("it was saved {} --documents; legal is the same", on_ ? "without" : "with");
    if (!on_) return;
    const std::string plan = state.at("plan");
    if (plan != plan_)
      throw UserError("its rows were planned with {}; legal are these flags, not {}", plan, plan_);
    const nlohmann::json end = state.value("end_of_text", end_of_text_);
    if (end != end_of_text_)
      throw UserError("its documents ended {}; legal is the same",
                      end.is_null() ? "where an .idx says" : "with --end-of-text " + end.dump());
    window = count_in(state.at("window"));
    row = count_in(state.at("row"));
  }

 private:
  bool on_;
  nlohmann::json end_of_text_;  ///< null: an index says where documents end
  std::string plan_;
};

/// The numbers of a range, ascending.
inline std::vector<int64_t> numbers_in(Range range) {
  std::vector<int64_t> all(static_cast<size_t>(range.size()));
  std::iota(all.begin(), all.end(), range.begin);
  return all;
}

/// The pieces of a window of documents, and their rows.
struct Window {
  std::vector<Piece> pieces;
  RowPlan rows;

  Window() = default;
  Window(std::vector<Piece> all, const PackOptions& options, int64_t T) : pieces(std::move(all)) {
    std::vector<int64_t> lengths;
    for (const Piece& piece : pieces) lengths.push_back(piece.length);
    rows = plan_rows(lengths, T, options.most(T), options.pack);
  }
  /// The rows of another window follow these.
  void append(Window other) {
    for (std::vector<int64_t>& row : other.rows)
      for (int64_t& piece : row) piece += std::ssize(pieces);
    pieces.insert(pieces.end(), other.pieces.begin(), other.pieces.end());
    rows.insert(rows.end(), other.rows.begin(), other.rows.end());
  }
  int64_t size() const { return std::ssize(rows); }
  /// The pieces of row i, in their order.
  std::vector<Piece> row(int64_t i) const {
    std::vector<Piece> of_row;
    for (const int64_t piece : rows[static_cast<size_t>(i)])
      of_row.push_back(pieces[static_cast<size_t>(piece)]);
    return of_row;
  }
};

/// Which documents of a file validate.
struct HeldOut {
  bool all = false;         ///< no document trains; false: the last tenth is held out
  int64_t targets = 65536;  ///< documents are taken until they have so many

  /// The documents before those that are held out, of `count`.
  int64_t train(int64_t count) const { return all ? 0 : count - count / 10; }
};

class DocumentWindows {
 public:
  /// @throws UserError if the documents of training, or those that are held out, have no target
  DocumentWindows(const TextOptions& text, const PackOptions& options, const HeldOut& held_out = {})
      : T_(text.seq_len),
        options_(options),
        file_(text, options.end_of_text),
        train_(held_out.train(file_.count())) {
    const int64_t count = file_.count();
    if (!held_out.all) require_target({0, train_}, "that train");
    require_target({train_, count},
                   held_out.all ? "that validate" : "that are held out, the last tenth,");
    // The last tenth is one window.
    const int64_t window = held_out.all ? options.window : std::max<int64_t>(1, count - train_);
    int64_t left = held_out.targets;
    for (int64_t first = train_; first < count && left > 0; first += window) {
      Window next(pieces_of({first, std::min(first + window, count)}, left), options_, T_);
      for (const Piece& piece : next.pieces) left -= piece.length;
      held_out_.append(std::move(next));
    }
  }

  const DocumentFile& file() const { return file_; }

  /// The pieces of the row at `place`, which then is the place of the row after it.
  std::vector<Piece> next(RowCursor& place) {
    while (place.row >= window(place.window).size()) {
      ++place.window;
      place.row = 0;
    }
    return window(place.window).row(place.row++);
  }

  /// The targets of pieces.
  TargetCount count_targets(const std::vector<Piece>& pieces) const {
    TargetCount all;
    for (const Piece& piece : pieces) all += file_.count_targets(piece.begin, piece.length);
    return all;
  }

  /// Documents that are held out, as many as have about HeldOut::targets.
  const Window& held_out() const { return held_out_; }

 private:
  /// Pieces of documents, until they have so many targets.
  std::vector<Piece> pieces_of(Range documents, int64_t most = INT64_MAX) const {
    std::vector<Piece> pieces;
    for (int64_t i = documents.begin, targets = 0; i < documents.end && targets < most; ++i) {
      const Range tokens = file_.document(i);
      cut(tokens, T_, pieces);
      targets += std::max<int64_t>(0, tokens.size() - 1);
    }
    return pieces;
  }

  void require_target(Range documents, const char* which) const {
    if (pieces_of(documents, 1).empty())
      throw UserError(
          "{}: none of its {} documents {} has a target; legal are ten documents or more, of two "
          "tokens or more",
          file_.name(), documents.size(), which);
  }

  /// Window w, which is kept until another is asked for.
  const Window& window(int64_t w) {
    if (w == number_) return window_;
    const int64_t windows = (train_ + options_.window - 1) / options_.window;
    const int64_t first = w % windows * options_.window;
    window_ = Window(pieces_of({first, std::min(first + options_.window, train_)}), options_, T_);
    number_ = w;
    return window_;
  }

  int64_t T_;
  PackOptions options_;
  DocumentFile file_;
  int64_t train_;  ///< documents of training
  int64_t number_ = -1;
  Window window_;
  Window held_out_;
};

}  // namespace ladder
