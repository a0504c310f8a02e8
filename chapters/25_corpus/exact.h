// Exact duplicates: texts of equal hashes are compared byte by byte.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "chapters/25_corpus/fates.h"
#include "chapters/25_corpus/share.h"
#include "common/data/line_files.h"
#include "common/data/sorted_records.h"
#include "common/json_document.h"

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

/// A line whose text is compared with others.
struct TextLine {
  JsonDocument document;  ///< with what is left of its text
  Hash128 line;  ///< hash of the whole line: lines of one source, id and text may differ elsewhere
  uint64_t ordinal;
};

/// Documents of one hash. Of those with equal texts, the one of the least (source, id) stays:
/// which of them is read first depends on the order of files.
class EqualTexts {
  static auto rank(const TextLine& of) {
    return std::tie(of.document.source, of.document.id, of.line);
  }

 public:
  void add(TextLine line) {
    Text& text = texts_[std::exchange(line.document.text, "")];
    text.lines.push_back(line.ordinal);
    if (text.lines.size() == 1 || rank(line) < rank(text.best)) text.best = std::move(line);
  }
  /// Calls f(removed, survivor) for each document that goes.
  template <class F>
  void for_removed(F&& f) const {
    for (const auto& [_, text] : texts_)
      for (const uint64_t ordinal : text.lines)
        if (ordinal != text.best.ordinal) f(ordinal, text.best.ordinal);
  }

 private:
  struct Text {
    TextLine best;
    std::vector<uint64_t> lines;
  };
  std::map<std::string, Text> texts_;
};

/// Reads the lines of groups again, and calls f(removed, survivor) for all but one of each text. At
/// a time it reads as many groups as have `limit` bytes of text, but at least one.
template <class F>
void compare_texts(LineFiles& files, int threads, std::span<const RuleSet> filter,
                   std::span<const LineEntry> lines, std::span<const std::vector<uint64_t>> groups,
                   int64_t limit, F&& f) {
  constexpr auto kNone = UINT32_MAX;
  while (!groups.empty()) {
    std::vector<uint32_t> group_of(lines.size(), kNone);
    std::vector<EqualTexts> equal;
    for (int64_t bytes = 0; equal.size() < groups.size() && (equal.empty() || bytes < limit);) {
      const std::vector<uint64_t>& group = groups[equal.size()];
      bytes += lines[group.front()].left;
      for (const uint64_t ordinal : group) group_of[ordinal] = static_cast<uint32_t>(equal.size());
      equal.emplace_back();
    }
    std::vector<std::vector<TextLine>> read(static_cast<size_t>(threads));
    files.rewind();
    const auto work = [&](size_t thread, const LinePart& part) {
      for (size_t i = 0; i < part.lines.size(); ++i) {
        const uint64_t ordinal = static_cast<uint64_t>(part.ordinal) + i;
        if (group_of[ordinal] == kNone) continue;
        TextLine& line = read[thread].emplace_back(
            TextLine{.document = {}, .line = hash128(part.line(i)), .ordinal = ordinal});
        read_document(part.line(i), line.document);
        line.document.text = without_lines(filter, std::move(line.document.text));
      }
    };
    for_own_parts(files, {.threads = threads}, work, [&] {
      for (std::vector<TextLine>& some : read) {
        for (TextLine& line : some) equal[group_of[line.ordinal]].add(std::move(line));
        some.clear();
      }
    });
    for (const EqualTexts& texts : equal) texts.for_removed(f);
    groups = groups.subspan(equal.size());
  }
}

}  // namespace ladder
