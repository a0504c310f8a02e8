#include "common/tokens/documents.h"

#include <algorithm>
#include <future>
#include <span>

#include "common/error.h"
#include "common/json_document.h"
#include "common/tokens/split.h"
#include "common/tokens/unicode.h"

namespace ladder {
namespace {

constexpr size_t kPart = size_t{1} << 20;

bool has_lines(const InputFile& file) { return file.path().ends_with(".jsonl"); }

size_t last_end(const TextPart& part) { return part.ends.empty() ? 0 : part.ends.back(); }

/// Ends a document, unless it is empty.
void end_document(TextPart& part) {
  if (part.text.size() > last_end(part)) part.ends.push_back(part.text.size());
}

}  // namespace

Documents::Documents(const std::vector<std::string>& paths, Utf8 utf8,
                     std::vector<std::string> whole)
    : utf8_(utf8), whole_(std::move(whole)) {
  for (const std::string& path : paths) files_.emplace_back(path, "--data");
}

int64_t Documents::file_bytes() const {
  int64_t bytes = 0;
  for (const InputFile& file : files_) bytes += file.size();
  return bytes;
}

std::string Documents::read_bytes() {
  const InputFile& file = files_[file_];
  std::string bytes(std::min(kPart, static_cast<size_t>(file.size() - at_)), '\0');
  file.read(at_, std::as_writable_bytes(std::span(bytes)));
  at_ += std::ssize(bytes);
  return bytes;
}

void Documents::end_file() {
  ++file_;
  at_ = line_ = 0;
  unchecked_ = 0;
}

/// @param text the bytes that were read last, after those that were not checked before
void Documents::check_utf8(std::string_view text, bool more) {
  unchecked_ = more ? unfinished_bytes(text) : 0;
  if (utf8_ == Utf8::Bytes) return;
  const size_t bad = first_invalid(text.substr(0, text.size() - unchecked_));
  if (bad == std::string_view::npos) return;
  throw UserError("{}: byte {} is not valid UTF-8; --utf8 bytes encodes it as it is",
                  files_[file_].name(), at_ - std::ssize(text) + static_cast<int64_t>(bad));
}

size_t Documents::cut(std::string_view text) const {
  size_t longest = 1;
  for (const std::string& special : whole_) longest = std::max(longest, special.size());
  if (text.size() < longest) return 0;
  size_t at = last_cut(text.substr(0, text.size() - (longest - 1)));
  for (bool moved = true; moved;) {
    moved = false;
    for (const std::string& one : whole_) {
      const size_t from = at < one.size() ? 0 : at - one.size() + 1;
      const size_t found = text.substr(0, at + one.size() - 1).find(one, from);
      if (found >= at || found == std::string_view::npos) continue;
      // Not `found` itself: another token may hide this one.
      at = last_cut(text.substr(0, found + 1));
      moved = true;
    }
  }
  return at;
}

void Documents::read_text(TextPart& part) {
  const size_t begin = part.text.size() - unchecked_;
  part.text += read_bytes();
  const bool more = at_ < files_[file_].size();
  check_utf8(std::string_view(part.text).substr(begin), more);
  if (more) return;
  end_document(part);
  end_file();
}

void Documents::read_lines(TextPart& part) {
  left_over_ += read_bytes();
  const InputFile& file = files_[file_];
  const bool more = at_ < file.size();
  JsonDocument document;
  size_t begin = 0;
  while (begin < left_over_.size()) {
    const size_t newline = left_over_.find('\n', begin);
    if (newline == std::string::npos && more) break;
    const std::string_view line = std::string_view(left_over_).substr(begin, newline - begin);
    begin = newline == std::string::npos ? left_over_.size() : newline + 1;
    ++line_;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (const std::string wrong = read_document(line, document); !wrong.empty())
      throw UserError("{}: line {}: {}", file.name(), line_, wrong);
    part.text += document.text;
    end_document(part);
  }
  left_over_.erase(0, begin);
  if (!more) end_file();
}

bool Documents::next(TextPart& part) {
  part.ends.clear();
  part.text.clear();
  // The beginning of a line is no text yet.
  if (file_ < files_.size() && !has_lines(files_[file_])) part.text.swap(left_over_);
  for (size_t wanted = kPart; file_ < files_.size(); wanted = 2 * part.text.size()) {
    while (part.text.size() < wanted && file_ < files_.size())
      has_lines(files_[file_]) ? read_lines(part) : read_text(part);
    const size_t begin = last_end(part);
    if (begin == part.text.size()) break;
    // The rest of the last document, not read yet, must not change how its beginning is split.
    size_t end = begin + cut(std::string_view(part.text).substr(begin));
    if (end == 0) continue;
    left_over_ = part.text.substr(end);
    part.text.resize(end);
    break;
  }
  bytes_ += std::ssize(part.text);
  return !part.text.empty();
}

void for_parts(Documents& documents, int threads,
               const std::function<void(size_t, const TextPart&)>& work,
               const std::function<void(size_t)>& round) {
  std::vector<TextPart> parts(static_cast<size_t>(threads));
  for (size_t read = parts.size(); read == parts.size();) {
    read = 0;
    while (read < parts.size() && documents.next(parts[read])) ++read;
    std::vector<std::future<void>> others;
    for (size_t i = 1; i < read; ++i)
      others.push_back(std::async(std::launch::async, work, i, std::cref(parts[i])));
    if (read > 0) work(0, parts[0]);
    for (std::future<void>& other : others) other.get();
    round(read);
  }
}

}  // namespace ladder
