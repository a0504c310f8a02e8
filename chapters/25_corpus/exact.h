// Exact duplicates: texts of equal hashes are compared byte by byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "chapters/25_corpus/fates.h"
#include "chapters/25_corpus/share.h"
#include "common/data/json_document.h"
#include "common/data/line_files.h"
#include "common/data/sorted_records.h"

namespace ladder {

/// A line with a key: the hash of its text, or of one band of its signature. Its ordinal is its
/// place among the lines of all files, from 0.
struct KeyRecord {
  Hash128 key;
  uint64_t ordinal;
  auto operator<=>(const KeyRecord&) const = default;
};

/// Calls f(ordinals) for each key that two or more lines have. Ordinals ascend.
template <class F>
void for_equal_keys(SortedRecords<KeyRecord>& records, F&& f) {
  std::vector<uint64_t> equal;
  Hash128 key;
  records.take([&](const KeyRecord& record) {
    if (record.key != key) {
      if (equal.size() > 1) f(equal);
      equal.clear();
    }
    key = record.key;
    if (equal.empty() || equal.back() != record.ordinal) equal.push_back(record.ordinal);
  });
  if (equal.size() > 1) f(equal);
}

/// A document whose text is compared.
struct TextLine {
  JsonDocument document;
  Hash128 line;  ///< hash of the whole line: lines of one source, id and text may differ elsewhere
  uint64_t ordinal;
};

/// Documents of one hash. Of those with one text, the one of the least (source, id) stays. The
/// first one that is read would be another for another order of files.
class EqualTexts {
 public:
  void add(TextLine line) {
    for (Text& text : texts_)
      if (text.best.document.text == line.document.text) return add_to(text, std::move(line));
    const uint64_t ordinal = line.ordinal;
    texts_.push_back({std::move(line), {ordinal}});
  }
  /// Calls f(removed, survivor) for each document that goes.
  template <class F>
  void for_removed(F&& f) const {
    for (const Text& text : texts_)
      for (const uint64_t ordinal : text.ordinals)
        if (ordinal != text.best.ordinal) f(ordinal, text.best.ordinal);
  }

 private:
  struct Text {
    TextLine best;
    std::vector<uint64_t> ordinals;
  };
  static void add_to(Text& text, TextLine&& line) {
    const auto rank = [](const TextLine& of) {
      return std::tie(of.document.source, of.document.id, of.line);
    };
    text.ordinals.push_back(line.ordinal);
    if (rank(line) < rank(text.best)) text.best = std::move(line);
  }
  std::vector<Text> texts_;
};

/// Reads the lines of some groups again, and calls f(removed, survivor) for all but one of each
/// text.
template <class F>
void compare_texts(LineFiles& files, int threads, size_t lines,
                   std::span<const std::vector<uint64_t>> groups, F&& f) {
  constexpr auto kNone = UINT32_MAX;
  std::vector<uint32_t> group_of(lines, kNone);
  for (size_t i = 0; i < groups.size(); ++i)
    for (const uint64_t ordinal : groups[i]) group_of[ordinal] = static_cast<uint32_t>(i);
  std::vector<EqualTexts> equal(groups.size());
  std::vector<std::vector<TextLine>> read(static_cast<size_t>(threads));
  files.rewind();
  const auto work = [&](size_t thread, const LinePart& part) {
    for (size_t i = 0; i < part.lines.size(); ++i) {
      const uint64_t ordinal = static_cast<uint64_t>(part.ordinal) + i;
      if (group_of[ordinal] == kNone) continue;
      TextLine& line = read[thread].emplace_back(
          TextLine{.document = {}, .line = hash128(part.line(i)), .ordinal = ordinal});
      read_document(part.line(i), line.document);
    }
  };
  for_own_parts(files, {.threads = threads}, work, [&](const auto&) {
    for (std::vector<TextLine>& some : read) {
      for (TextLine& line : some) equal[group_of[line.ordinal]].add(std::move(line));
      some.clear();
    }
  });
  for (const EqualTexts& texts : equal) texts.for_removed(f);
}

/// compare_texts() for all groups: at a time as many as fit into `limit` bytes of text, but at
/// least one.
template <class F>
void compare_all_texts(LineFiles& files, int threads, std::span<const LineEntry> lines,
                       std::span<const std::vector<uint64_t>> groups, int64_t limit, F&& f) {
  while (!groups.empty()) {
    size_t some = 0;
    for (int64_t bytes = 0; some < groups.size() && (some == 0 || bytes < limit); ++some)
      bytes += lines[groups[some].front()].bytes;
    compare_texts(files, threads, lines.size(), groups.first(some), f);
    groups = groups.subspan(some);
  }
}

}  // namespace ladder
