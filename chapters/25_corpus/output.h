// What is written: the lines that stay, as they were, and those that are removed, with the reason.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chapters/25_corpus/rules.h"
#include "common/checksum.h"
#include "common/data/line_files.h"
#include "common/json.h"
#include "common/json_document.h"
#include "common/output_file.h"

namespace ladder {

/// A file of lines.
class LineWriter {
 public:
  /// @throws UserError as OutputFile
  LineWriter(const std::string& path, const std::string& flag) : file_(path, flag) {}
  void write(std::string_view line) {
    buffer_ += line;
    buffer_ += '\n';
    if (buffer_.size() >= kAtATime) flush();
  }
  /// As OutputFile::sync().
  void sync() {
    flush();
    file_.sync();
  }
  void commit() {
    flush();
    file_.commit();
  }

 private:
  static constexpr size_t kAtATime = size_t{1} << 20;
  void flush() {
    if (!buffer_.empty()) file_.write(buffer_);
    buffer_.clear();
  }
  OutputFile file_;
  std::string buffer_;
};

/// The line of a document, with what these sets leave of its text.
inline std::string with_changed_text(std::span<const RuleSet> filter, std::string_view line) {
  JsonDocument document;
  read_document(line, document);
  return fmt::format("{}{}{}", line.substr(0, document.begin),
                     nlohmann::json(without_lines(filter, document.text)).dump(),
                     line.substr(document.end));
}

/// What --removed says of documents that stay instead of others: source and id; the file and the
/// line of a document without an id.
/// @param ordinals of these documents
inline std::map<uint64_t, std::string> names_of_survivors(LineFiles& files,
                                                          const std::set<uint64_t>& ordinals) {
  std::map<uint64_t, std::string> names;
  if (ordinals.empty()) return names;
  JsonDocument document;
  files.rewind();
  for (LinePart part; files.next(part);) {
    const auto first = static_cast<uint64_t>(part.ordinal);
    const auto end = ordinals.lower_bound(first + part.lines.size());
    for (auto at = ordinals.lower_bound(first); at != end; ++at) {
      read_document(part.line(*at - first), document);
      nlohmann::json name{{"source", document.source}, {"id", document.id}};
      if (document.id.empty())
        name = {{"file", files.files()[part.file].path()},
                {"line", part.number + static_cast<int64_t>(*at - first)}};
      names[*at] = json_text(name);
    }
  }
  return names;
}

/// A sum of hashes: equal for equal sets of lines, whatever their order.
class SetHash {
 public:
  void add(std::string_view line) {
    const Hash128 hash = hash128(line);
    sum_.low += hash.low;
    sum_.high += hash.high + (sum_.low < hash.low);
  }
  std::string hex() const { return sum_.hex(); }

 private:
  Hash128 sum_;
};

}  // namespace ladder
