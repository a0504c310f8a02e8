// Documents: gives the texts of files in parts of bounded size. The trainer of a tokenizer and the
// encoder read them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/input_file.h"
#include "common/names.h"

namespace ladder {

/// Whether bytes that are not valid UTF-8 are refused, or taken as they are.
enum class Utf8 : uint8_t { Refuse, Bytes };
constexpr auto names_of(Utf8) { return std::array{"refuse", "bytes"}; }

/// Whole documents, or a part of a large one. A document is cut only where a piece ends (split.h),
/// so its pieces do not depend on the cut.
struct TextPart {
  std::string text;
  std::vector<size_t> ends;  ///< where documents end; the next part goes on after the last end
};

/// A file is one document. In a file *.jsonl, each line is an object whose "text" is a document.
/// Empty documents are skipped.
class Documents {
 public:
  /// @param whole texts that may not be cut into two parts
  /// @throws UserError naming a file that cannot be read
  Documents(const std::vector<std::string>& paths, Utf8 utf8, std::vector<std::string> whole = {});

  /// Reads about a MiB, or more if no piece ends before.
  /// @return false if there is no more
  /// @throws UserError naming the file, and the place of what is not legal
  bool next(TextPart& part);
  int64_t bytes() const { return bytes_; }  ///< of all parts so far
  int64_t file_bytes() const;               ///< of all files

 private:
  void read_text(TextPart& part);
  void read_lines(TextPart& part);
  void end_file();
  std::string read_bytes();
  void check_utf8(std::string_view text, bool more);
  size_t cut(std::string_view text) const;

  std::vector<InputFile> files_;
  Utf8 utf8_;
  std::vector<std::string> whole_;
  size_t file_ = 0;
  int64_t at_ = 0;         ///< in the file
  int64_t line_ = 0;       ///< of a file of lines
  size_t unchecked_ = 0;   ///< bytes at the end of the part that may be half a character
  std::string left_over_;  ///< the beginning of the next part, or of a line
  int64_t bytes_ = 0;
};

/// Reads a part for each thread, calls work(thread, part) in all threads, then round(how many parts
/// these were); and so on until there are no more parts.
/// @throws what work() throws
void for_parts(
    Documents& documents, int threads, const std::function<void(size_t, const TextPart&)>& work,
    const std::function<void(size_t)>& round = [](size_t) {});

}  // namespace ladder
