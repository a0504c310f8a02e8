// What becomes of a line, and the funnel: how many documents and bytes each rule leaves.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include <fmt/format.h>

#include "chapters/25_corpus/rules.h"
#include "common/checksum.h"

namespace ladder {

/// What becomes of a line: it is kept, or this is the first reason to remove it. Rule i of the
/// table in rules.h has the number Rules + i.
enum class Fate : uint16_t { Kept, Blank, Empty, HeldOut, Exact, Near, Rules };

inline Fate fate_of(const Rule& rule) {
  return static_cast<Fate>(static_cast<size_t>(Fate::Rules) +
                           static_cast<size_t>(&rule - std::begin(kRules)));
}
inline std::string name_of(Fate fate) {
  constexpr std::array kFates = {"kept", "blank", "empty", "held_out", "exact", "near"};
  const auto i = static_cast<size_t>(fate);
  return i < kFates.size() ? kFates[i] : name_of(kRules[i - kFates.size()]);
}
/// A line of the files. Rank 0 has all of them in their order.
struct LineEntry {
  uint64_t ordinal = 0;
  Hash128 hash{};              ///< of what is left of the text
  int64_t read = 0, left = 0;  ///< bytes of the text, before and after C4 has changed it
  Fate fate = Fate::Kept;
  bool is_changed = false;    ///< the text that is left is another one
  bool has_shingles = false;  ///< of as many words as --shingle says
};

/// Prints what each rule removes and leaves, in the order in which rules are asked.
inline void print_funnel(std::span<const LineEntry> lines, std::span<const RuleSet> filter) {
  int64_t documents = 0, left = 0, deleted = 0;
  const auto print = [&](const std::string& name, int64_t removed) {
    fmt::print("{:<32}{:>10}{:>12}{:>15}\n", name, removed, documents, left);
  };
  const auto remove = [&](Fate reason) {
    int64_t removed = 0;
    for (const LineEntry& line : lines) {
      if (line.fate != reason) continue;
      ++removed;
      left -= line.left;
    }
    documents -= removed;
    if (removed > 0) print(name_of(reason), removed);
  };
  fmt::print("{:<32}{:>10}{:>12}{:>15}\n", "rule", "removed", "documents", "bytes");
  for (const LineEntry& line : lines) {
    if (line.fate == Fate::Blank) continue;
    ++documents;
    left += line.read;
    deleted += line.read - line.left;
  }
  print("read", 0);
  remove(Fate::Empty);
  for (const RuleSet set : filter) {
    if (set == RuleSet::C4) {
      left -= deleted;
      print("c4: lines deleted", 0);
    }
    for (const Rule& rule : kRules)
      if (rule.set == set) remove(fate_of(rule));
  }
  for (const Fate reason : {Fate::HeldOut, Fate::Exact, Fate::Near}) remove(reason);
}

}  // namespace ladder
