// The order of the data: which documents a step reads, on any number of ranks and wherever the run
// was stopped.
//
// Documents are dealt from the sources one by one. A window is --pack-window of them, and chapter
// 26 packs a window into rows before any rank takes one. So the rows of the run are one long list:
//
//   window   0 0 0 0 0 0 0 1 1 1 1 1 1 2 ...
//   row      0 1 2 3 4 5 6 0 1 2 3 4 5 0 ...
//   step     0 0 0 0 1 1 1 1 2 2 2 2 3 3 ...    4 rows each
//   rank     0 0 1 1 0 0 1 1 0 0 1 1 0 0 ...    2 ranks
//
// Nothing in the list depends on ranks, micro-batches, or on --unpacked. Every rank follows the
// whole list, from the index alone, and reads the tokens of its own rows. A place in the list is a
// window, a row in it, and how many documents of each source were dealt before the window and after
// it. With the seed, any other number of ranks goes on from there.
//
// --new-weights changes the weights of a run that goes on, from its next window on. Shares count
// from there: otherwise a source whose weight grows would come alone until it had caught up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/26_packing/windows.h"
#include "chapters/27_data_order/dealing.h"
#include "chapters/27_data_order/permutation.h"
#include "chapters/27_data_order/sources.h"
#include "common/error.h"
#include "common/save/manifest.h"

namespace ladder {

/// Where the next row is. Without --sources it is a place of chapter 26.
class OrderPlace : public RowCursor {
 public:
  /// @param options must outlive it
  OrderPlace(const SourceOptions& options, const PackOptions& packing, int64_t T, uint64_t seed_)
      : RowCursor(packing, T),
        seed(seed_),
        counts_at_begin(options.sources.size()),
        counts_at_end(counts_at_begin),
        since(counts_at_begin),
        targets(counts_at_begin),
        options_(&options) {
    take_weights();
  }

  uint64_t seed;  ///< of the permutations; a resumed run goes on with this one
  /// Documents of each source that had been dealt when the window began, and when it ended. Both
  /// are equal if the window is not dealt yet.
  std::vector<int64_t> counts_at_begin, counts_at_end;
  std::vector<int64_t> weights;  ///< by which the documents of the window are dealt
  std::vector<int64_t> since;    ///< dealt of each source before these weights held
  std::vector<int64_t> targets;  ///< learned of each source in all rows before this place

  /// The weights of --sources hold from this window on, which is not dealt yet.
  void take_weights() {
    std::vector<int64_t> own;
    for (const SourceFiles& source : options_->sources) own.push_back(source.weight);
    if (own == weights) return;
    weights = own;
    since = counts_at_begin;
  }

  /// Its name in a checkpoint: a place in --sources must not be taken for one in a file.
  std::string name() const { return options_->on() ? kOrderState : kDocumentsState; }

  nlohmann::json state() const {
    nlohmann::json state = RowCursor::state();
    const std::vector<SourceFiles>& sources = options_->sources;
    if (sources.empty()) return state;
    state["seed"] = seed;
    state["sources"] = nlohmann::json::array();
    for (size_t s = 0; s < sources.size(); ++s)
      state["sources"].push_back({{"path", sources[s].path},
                                  {"weight", weights[s]},
                                  {"since", since[s]},
                                  {"content", sources[s].checksum},
                                  {"count", counts_at_begin[s]},
                                  {"dealt", counts_at_end[s]},
                                  {"targets", targets[s]}});
    return state;
  }

  /// @throws UserError if the order would be another; it names what has changed
  void set_state(const nlohmann::json& state) {
    const std::vector<SourceFiles>& sources = options_->sources;
    if (sources.empty()) return RowCursor::set_state(state);
    const nlohmann::json& all = state.at("sources");
    if (all.size() != sources.size())
      throw UserError("it has {} sources; legal are as many, not {}", all.size(), sources.size());
    OrderPlace then = *this;
    for (size_t s = 0; s < sources.size(); ++s) {
      const SourceFiles& here = sources[s];
      const std::string path = all[s].at("path"), checksum = all[s].at("content");
      then.weights[s] = count_in(all[s].at("weight"));
      then.since[s] = count_in(all[s].value("since", nlohmann::json(0)));
      if (then.weights[s] != here.weight && !options_->new_weights)
        throw UserError(
            "the weight of source {} was {}; legal is the same, not {}, or with --new-weights",
            here.path, then.weights[s], here.weight);
      if (checksum != here.checksum)
        throw UserError(
            "source {}: its files have changed; the checkpoint has {} (path {}), now {}", here.path,
            checksum, path, here.checksum);
      then.counts_at_begin[s] = count_in(all[s].at("count"));
      then.counts_at_end[s] = count_in(all[s].at("dealt"));
      then.targets[s] = count_in(all[s].at("targets"));
    }
    then.seed = state.at("seed");
    then.RowCursor::set_state(state);
    *this = then;
  }

  /// Leaves out counts_at_end, because a window that is not dealt yet does not have it, and
  /// `targets`, which follow from the rest.
  bool operator==(const OrderPlace& other) const {
    return window == other.window && row == other.row && seed == other.seed &&
           counts_at_begin == other.counts_at_begin;
  }

 private:
  const SourceOptions* options_;
};

/// What a rank needs of a step.
struct OrderedStep {
  OrderPlace before, after;
  bool whole = false;                            ///< false: the data ends within this step
  std::vector<std::vector<Piece>> bundles = {};  ///< of this rank, as places in `tokens`
  std::vector<int32_t> tokens = {};              ///< of these pieces, one piece after the other
  TargetCount learned = {};  ///< of all bundles; on the rank with the first of them, others have 0
  int64_t read_ns = 0;       ///< how long reading took

  void read(int64_t begin, std::span<int32_t> out) const {
    std::copy_n(tokens.begin() + begin, out.size(), out.begin());
  }
};

/// The rows of the run: deals documents, packs windows, and reads.
class DataOrder {
 public:
  /// @param options must outlive it
  /// @throws UserError as Source does
  DataOrder(const SourceOptions& options, const PackOptions& packing, const RunOptions& run,
            const GptConfig& gpt)
      : options_(options), packing_(packing), T_(gpt.seq_len) {
    for (const SourceFiles& source : options.sources)
      sources_.emplace_back(source, run, gpt, packing.end_of_text);
  }

  /// The step of B bundles that begins at `place`. This rank has those whose numbers are `own`,
  /// ascending.
  /// @throws UserError if a file has changed
  OrderedStep read(const OrderPlace& place, int64_t B, const std::vector<int64_t>& own) {
    OrderedStep step{.before = place, .after = place};
    for (int64_t b = 0; b < B; ++b) {
      if (!find_row(step.after)) return step;
      const bool is_own = std::ranges::binary_search(own, b);
      if (is_own) step.bundles.emplace_back();
      for (const int64_t i : window_.rows[static_cast<size_t>(step.after.row)]) {
        const Origin& from = origins_[static_cast<size_t>(i)];
        Piece piece = window_.pieces[static_cast<size_t>(i)];
        step.after.targets[from.source] += piece.length;
        // The rank with bundle 0 is the one that counts.
        if (own.front() == 0) step.learned += from.file->count_targets(piece.begin, piece.length);
        if (!is_own) continue;
        const auto at = step.tokens.size(), tokens = static_cast<size_t>(piece.length + 1);
        step.tokens.resize(at + tokens);
        from.file->read(piece.begin, std::span(step.tokens).subspan(at, tokens));
        piece.begin = static_cast<int64_t>(at);
        step.bundles.back().push_back(piece);
      }
      ++step.after.row;
    }
    step.whole = true;
    return step;
  }

  const std::vector<Source>& sources() const { return sources_; }

 private:
  /// Where a piece comes from.
  struct Origin {
    size_t source;
    const DocumentFile* file;
  };

  /// Goes on to the next window that has a row, if this one has none left.
  /// @return false where the data ends
  bool find_row(OrderPlace& place) {
    open(place);
    while (place.row >= window_.size()) {
      if (place.counts_at_end == place.counts_at_begin) return false;
      place.counts_at_begin = place.counts_at_end;
      place.row = 0;
      ++place.window;
      open(place);
    }
    return true;
  }

  /// Deals the documents of the window of `place`, which is kept until another is asked for. If the
  /// end of an epoch has cut a window, it stays cut in a run that goes on with more epochs.
  void open(OrderPlace& place) {
    if (place.counts_at_end == place.counts_at_begin) place.take_weights();
    if (place.window != number_ || place.seed != seed_ || place.counts_at_begin != counts_at_begin_)
      deal(place);
    place.counts_at_end = counts_at_end_;
  }

  void deal(const OrderPlace& place) {
    const auto sum = [](const std::vector<int64_t>& all) {
      return std::accumulate(all.begin(), all.end(), int64_t{0});
    };
    // Documents of the window; 0: not dealt before.
    const int64_t known = sum(place.counts_at_end) - sum(place.counts_at_begin);
    number_ = place.window;
    seed_ = place.seed;
    counts_at_begin_ = counts_at_end_ = place.counts_at_begin;
    std::vector<Piece> pieces;
    std::vector<int64_t> dealt;  // of each source since the weights hold
    std::ranges::transform(counts_at_begin_, place.since, std::back_inserter(dealt), std::minus());
    origins_.clear();
    for (int64_t n = 0; n < (known > 0 ? known : packing_.window); ++n) {
      const size_t s = next_source(place.weights, dealt);
      const int64_t c = counts_at_end_[s], documents = sources_[s].documents();
      const int64_t epoch = c / documents;
      if (known <= 0 && options_.epochs > 0 && epoch >= options_.epochs) break;
      const Permutation order(place.seed, static_cast<int64_t>(s), epoch, documents);
      const Source::Place found = sources_[s].find(order.at(c % documents));
      cut(found.tokens, T_, pieces);
      origins_.resize(pieces.size(), {s, found.file});
      ++counts_at_end_[s];
      ++dealt[s];
    }
    window_ = Window(std::move(pieces), packing_, T_);
  }

  const SourceOptions& options_;
  PackOptions packing_;
  int64_t T_;
  std::vector<Source> sources_;

  // The present window.
  int64_t number_ = -1;
  uint64_t seed_ = 0;
  std::vector<int64_t> counts_at_begin_, counts_at_end_;  ///< as in OrderPlace
  Window window_;
  std::vector<Origin> origins_;  ///< of each piece
};

}  // namespace ladder
