// What becomes of a line, and the funnel: how many documents, bytes and tokens each rule leaves.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "chapters/25_corpus/rules.h"
#include "common/checksum.h"

namespace ladder {

/// What becomes of a line: it is kept, or this is the first reason to remove it. Rule i of the
/// table in rules.h has the number Rules + i.
enum class Fate : uint16_t { Kept, Blank, Broken, Empty, HeldOut, Exact, Near, Rules };

inline Fate fate_of(const Rule& rule) {
  return static_cast<Fate>(static_cast<size_t>(Fate::Rules) +
                           static_cast<size_t>(&rule - std::begin(kRules)));
}
inline std::string name_of(Fate fate) {
  constexpr std::array kFates = {"kept", "blank", "broken", "empty", "held_out", "exact", "near"};
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
  TextSize read{}, left{};  ///< before and after C4 has deleted lines
  Fate fate = Fate::Kept;
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
    if (set == RuleSet::C4) {
      left.bytes -= deleted.bytes;
      left.tokens -= deleted.tokens;
      print("c4: lines deleted", 0);
    }
    for (const Rule& rule : kRules)
      if (rule.set == set) remove(fate_of(rule));
  }
  for (const Fate reason : {Fate::HeldOut, Fate::Exact, Fate::Near}) remove(reason);
}

}  // namespace ladder
