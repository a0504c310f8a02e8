// What becomes of a line, and the funnel: how many documents, bytes and tokens each rule leaves.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "chapters/25_corpus/rules.h"
#include "common/checksum.h"
#include "common/comm/failure.h"

namespace ladder {

/// What becomes of a line: it is kept, or this is the first reason to remove it. Rule i of the
/// table in rules.h has the number Rules + i.
enum class Fate : uint16_t {
  Kept,
  Blank,
  Broken,
  Empty,
  HeldOut,
  Exact,
  EqualAfterFilter,
  Near,
  Rules
};

inline Fate fate_of(const Rule& rule) {
  return static_cast<Fate>(static_cast<size_t>(Fate::Rules) +
                           static_cast<size_t>(&rule - std::begin(kRules)));
}
inline std::string name_of(Fate fate) {
  constexpr std::array kFates = {
      "kept", "blank", "broken", "empty", "held_out", "exact", "equal_after_filter", "near"};
  const auto i = static_cast<size_t>(fate);
  return i < kFates.size() ? kFates[i] : name_of(kRules[i - kFates.size()]);
}
/// The size of a text. Tokens are 0 without a tokenizer.
struct TextSize {
  int64_t bytes = 0, tokens = 0;
};

/// A line of the files. Rank 0 has all of them in their order.
struct LineEntry {
  uint64_t ordinal = 0;
  Hash128 hash{};           ///< of what is left of the text
  TextSize read{}, left{};  ///< before and after sets of rules have changed the text
  uint32_t source = 0;      ///< a hash of its name
  Fate fate = Fate::Kept;
  bool is_changed = false;    ///< the text that is left is another one
  bool has_shingles = false;  ///< of as many words as --shingle says
};

/// Prints what each rule removes and leaves, in the order in which rules are asked.
/// @param with_tokens whether a tokenizer has counted them
inline void print_funnel(std::span<const LineEntry> lines, std::span<const RuleSet> filter,
                         bool with_tokens) {
  int64_t documents = 0;
  TextSize left;
  const auto print = [&](const std::string& name, int64_t removed) {
    fmt::print("{:<32}{:>10}{:>12}{:>15}", name, removed, documents, left.bytes);
    fmt::print("{}\n", with_tokens ? fmt::format("{:>14}", left.tokens) : "");
  };
  const auto remove = [&](Fate reason) {
    int64_t removed = 0;
    for (const LineEntry& line : lines) {
      if (line.fate != reason) continue;
      ++removed;
      left.bytes -= line.left.bytes;
      left.tokens -= line.left.tokens;
    }
    documents -= removed;
    if (removed > 0) print(name_of(reason), removed);
  };
  fmt::print("{:<32}{:>10}{:>12}{:>15}{}\n", "rule", "removed", "documents", "bytes",
             with_tokens ? "        tokens" : "");
  TextSize deleted;
  for (const LineEntry& line : lines) {
    if (line.fate == Fate::Blank || line.fate == Fate::Broken) continue;
    ++documents;
    left.bytes += line.read.bytes;
    left.tokens += line.read.tokens;
    deleted.bytes += line.read.bytes - line.left.bytes;
    deleted.tokens += line.read.tokens - line.left.tokens;
  }
  print("read", 0);
  remove(Fate::Empty);
  for (const RuleSet set : filter) {
    // With C4, the row of its lines has the blanks, too, that --unwrap takes.
    if (set == RuleSet::C4 ||
        (set == RuleSet::Unwrap && !std::ranges::count(filter, RuleSet::C4))) {
      left.bytes -= deleted.bytes;
      left.tokens -= deleted.tokens;
      print(set == RuleSet::C4 ? "c4: lines deleted" : "unwrapped", 0);
    }
    for (const Rule& rule : kRules)
      if (rule.set == set) remove(fate_of(rule));
  }
  for (const Fate reason : {Fate::HeldOut, Fate::Exact, Fate::EqualAfterFilter, Fate::Near})
    remove(reason);
}

/// Warns of each rule that takes more than half of the bytes of a source, up to ten times.
/// @param names of sources, by the hash that lines have
inline void warn_of_losses(std::span<const LineEntry> lines,
                           const std::map<uint32_t, std::string>& names) {
  struct Source {
    int64_t bytes = 0;
    std::map<std::string, int64_t> taken = {};  ///< by the rule
  };
  std::map<uint32_t, Source> sources;
  for (const LineEntry& line : lines) {
    Source& source = sources[line.source];
    source.bytes += line.read.bytes;
    source.taken["c4, which deletes lines,"] += line.read.bytes - line.left.bytes;
    if (line.fate >= Fate::Rules) source.taken[name_of(line.fate)] += line.left.bytes;
  }
  int told = 0;
  for (const auto& [hash, source] : sources)
    for (const auto& [rule, bytes] : source.taken) {
      if (2 * bytes <= source.bytes || ++told > 10) continue;
      const std::string& name = names.at(hash);
      tell(fmt::format(
          "warning: {} takes {} of the {} bytes of {}{}", rule, bytes, source.bytes,
          name.empty() ? "documents without a source" : "source " + name,
          rule.starts_with("c4,") ? "; --unwrap joins lines that are as wide as a page" : ""));
    }
}

}  // namespace ladder
