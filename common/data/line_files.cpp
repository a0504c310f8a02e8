#include "common/data/line_files.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/error.h"

namespace ladder {
namespace {

constexpr int64_t kBytesAtATime = int64_t{1} << 18;

/// Finds the lines of `part.text`. The last line may lack its newline.
void cut_lines(LinePart& part, int64_t longest) {
  const std::string_view text = part.text;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    part.lines.push_back({begin, end - begin, static_cast<int64_t>(end - begin) > longest});
    begin = end + 1;
  }
}

}  // namespace

LineFiles::LineFiles(const std::vector<std::string>& paths, std::string_view flag, int64_t longest)
    : longest_(longest) {
  for (const std::string& path : paths) files_.emplace_back(path, flag);
}

void LineFiles::rewind() {
  left_over_.clear();
  file_ = 0;
  at_ = 0;
  number_ = 1;
  ordinal_ = 0;
}

std::string LineFiles::name_of(const LinePart& part, size_t line) const {
  return fmt::format("{}: line {}", files_[part.file].name(),
                     part.number + static_cast<int64_t>(line));
}

/// Appends bytes of the open file. @return false if it has no more
bool LineFiles::fill(std::string& text) {
  const InputFile& file = files_[file_];
  const int64_t bytes = std::min(kBytesAtATime, file.size() - at_);
  const size_t before = text.size();
  text.resize(before + static_cast<size_t>(bytes));
  file.read(at_, std::as_writable_bytes(std::span(text).subspan(before)));
  at_ += bytes;
  return bytes > 0;
}

/// Reads to the end of a line that is longer than is legal, and drops it.
void LineFiles::skip_long(LinePart& part) {
  size_t newline = std::string::npos;
  do part.text.clear();
  while (fill(part.text) && (newline = part.text.find('\n')) == std::string::npos);
  if (newline != std::string::npos) left_over_ = part.text.substr(newline + 1);
  part.text.clear();
  part.lines.push_back({0, 0, true});
}

bool LineFiles::next(LinePart& part) {
  part.text.clear();
  part.lines.clear();
  for (; file_ < files_.size(); ++file_, number_ = 1) {
    part.text = std::exchange(left_over_, "");
    bool has_end = part.text.find('\n') != std::string::npos;
    do {
      const size_t before = part.text.size();
      if (!fill(part.text)) break;
      has_end = has_end || part.text.find('\n', before) != std::string::npos;
      if (!has_end && std::ssize(part.text) > longest_) {
        skip_long(part);
        break;
      }
    } while (!has_end);
    // The last line of a file may lack its newline.
    if (const size_t last = part.text.rfind('\n'); last != std::string::npos) {
      left_over_ = part.text.substr(last + 1);
      part.text.resize(last + 1);
    }
    cut_lines(part, longest_);
    if (!part.lines.empty()) break;
    at_ = 0;
  }
  part.file = file_;
  part.number = number_;
  part.ordinal = ordinal_;
  number_ += std::ssize(part.lines);
  ordinal_ += std::ssize(part.lines);
  return !part.lines.empty();
}

}  // namespace ladder
