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
/// All reasons to remove a document, in the order in which they are asked.
inline std::vector<Fate> reasons() {
  std::vector<Fate> all{Fate::Empty};
  for (const Rule& rule : kRules) all.push_back(fate_of(rule));
  all.insert(all.end(), {Fate::HeldOut, Fate::Exact, Fate::Near});
  return all;
}

/// A line of the files. Rank 0 has all of them in their order.
struct LineEntry {
  uint64_t ordinal = 0;
  Hash128 hash{};  ///< of the text
  int64_t bytes = 0, tokens = 0;
  Fate fate = Fate::Kept;
};

/// Prints what each rule removes and leaves, in the order of reasons().
/// @param with_tokens whether a tokenizer has counted them
inline void print_funnel(std::span<const LineEntry> lines, bool with_tokens) {
  struct Sum {
    int64_t documents = 0, bytes = 0, tokens = 0;
  };
  const auto sum = [&](auto&& is_one) {
    Sum of;
    for (const LineEntry& line : lines) {
      if (line.fate == Fate::Blank || line.fate == Fate::Broken || !is_one(line.fate)) continue;
      ++of.documents;
      of.bytes += line.bytes;
      of.tokens += line.tokens;
    }
    return of;
  };
  const auto print = [&](const std::string& name, int64_t removed, const Sum& left) {
    fmt::print("{:<32}{:>10}{:>12}{:>15}", name, removed, left.documents, left.bytes);
    if (with_tokens) fmt::print("{:>14}", left.tokens);
    fmt::print("\n");
  };
  fmt::print("{:<32}{:>10}{:>12}{:>15}{}\n", "rule", "removed", "documents", "bytes",
             with_tokens ? "        tokens" : "");
  Sum left = sum([](Fate) { return true; });
  print("read", 0, left);
  for (const Fate reason : reasons()) {
    const Sum removed = sum([&](Fate fate) { return fate == reason; });
    if (removed.documents == 0) continue;
    left.documents -= removed.documents;
    left.bytes -= removed.bytes;
    left.tokens -= removed.tokens;
    print(name_of(reason), removed.documents, left);
  }
}

}  // namespace ladder
