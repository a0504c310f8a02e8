// What becomes of one document, as far as it can be said without the others; and its keys, by which
// its duplicates are found.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chapters/25_corpus/exact.h"
#include "chapters/25_corpus/fates.h"
#include "chapters/25_corpus/held_out.h"
#include "chapters/25_corpus/minhash.h"
#include "chapters/25_corpus/rules.h"
#include "common/json_document.h"
#include "common/names.h"
#include "common/run/command_line.h"

namespace ladder {

enum class Dedup : uint8_t { None, Exact, Near };
constexpr auto names_of(Dedup) { return std::array{"none", "exact", "near"}; }

struct SieveOptions {
  std::vector<RuleSet> filter;  ///< empty: none
  Dedup dedup = Dedup::Exact;
  MinHashOptions minhash;

  void add_to(CommandLine& line) {
    line.group("25_corpus");
    line.add("--filter", filter, "whose rules a document must keep, in this order");
    line.add("--dedup", dedup, "duplicates that are removed; near: exact ones, too");
    minhash.add_to(line);
  }
  /// @throws UserError
  void check() const {
    minhash.check();
    for (const RuleSet set : filter)
      if (std::ranges::count(filter, set) > 1)
        throw UserError("--filter: {} stands there twice", to_string(set));
  }
};

/// What a thread has found in one part of the files, until ranks exchange it. There is a list of
/// records for each rank to which they go.
struct Judged {
  std::vector<LineEntry> lines;
  std::vector<std::vector<KeyRecord>> texts, bands;

  explicit Judged(int ranks) : texts(static_cast<size_t>(ranks)), bands(texts) {}
};
inline void send_to_owner(std::vector<std::vector<KeyRecord>>& to, const Hash128& key,
                          uint64_t ordinal) {
  to[key.high % to.size()].push_back({key, ordinal});
}

/// Judges documents. Each thread has a Judge of its own.
class Judge {
 public:
  /// Judges may share all of these.
  /// @param held_out null if there is none
  Judge(const SieveOptions& o, const HashFunctions& functions, HeldOut* held_out)
      : o_(o), functions_(functions), held_out_(held_out) {}

  /// @return what is wrong with the line; "" if it is a document, or blank
  std::string judge(std::string_view line, uint64_t ordinal, Judged& found) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      found.lines.push_back({.ordinal = ordinal, .fate = Fate::Blank});
      return "";
    }
    if (std::string wrong = read_document(line, document_); !wrong.empty()) return wrong;
    LineEntry& entry = found.lines.emplace_back(LineEntry{.ordinal = ordinal});
    std::string& text = document_.text;
    entry.read = std::ssize(text);
    original_ = text;
    entry.fate = fate(text);
    entry.is_changed = text != original_;
    entry.left = std::ssize(text);
    entry.hash = hash128(text);
    if (entry.fate == Fate::Kept) add_keys(text, entry, found);
    return "";
  }

 private:
  Fate fate(std::string& text) {
    if (trimmed(text).empty()) return Fate::Empty;
    // The whole text is searched: C4 may delete lines from the middle of the shared words.
    const bool is_held_out = held_out_ && held_out_->is_in(PlainWords(text));
    if (const Rule* rule = broken_rule(o_.filter, text)) return fate_of(*rule);
    return is_held_out ? Fate::HeldOut : Fate::Kept;
  }
  void add_keys(std::string_view text, LineEntry& entry, Judged& found) {
    if (o_.dedup == Dedup::None) return;
    send_to_owner(found.texts, entry.hash, entry.ordinal);
    if (o_.dedup != Dedup::Near) return;
    const PlainWords words(text);
    entry.has_shingles = words.size() >= static_cast<size_t>(o_.minhash.shingle);
    const std::vector<uint64_t> hashes = shingles(words, o_.minhash.shingle);
    if (hashes.empty()) return;
    for (const Hash128& key : band_keys(signature(hashes, functions_), o_.minhash.rows))
      send_to_owner(found.bands, key, entry.ordinal);
  }

  const SieveOptions& o_;
  const HashFunctions& functions_;
  HeldOut* held_out_;
  JsonDocument document_;
  std::string original_;  ///< the text before any set has changed it
};

}  // namespace ladder
