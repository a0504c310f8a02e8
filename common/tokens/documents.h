// Documents: texts of files in parts of bounded size, for the trainer and the encoder of tokens.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/input_file.h"
#include "common/names.h"

namespace ladder {

/// What becomes of bytes that are not valid UTF-8.
enum class Utf8 : uint8_t { Refuse, Bytes };
constexpr auto names_of(Utf8) { return std::array{"refuse", "bytes"}; }

/// Whole documents, and parts of one whose pieces are those of the whole.
struct TextPart {
  std::string text;
  std::vector<size_t> ends;  ///< where documents end; behind the last, the next part goes on
};

/// A file is a document; of a file *.jsonl each line is an object whose "text" is one. Empty ones
/// are passed over.
class Documents {
 public:
  /// @param whole texts that no part may cut in two
  /// @throws UserError naming a file that cannot be read
  Documents(const std::vector<std::string>& paths, Utf8 utf8, std::vector<std::string> whole = {});

  /// About a MiB, or as much as it takes to end where a piece does. false: there is no more.
  /// @throws UserError naming the file, and the place of what is not legal
  bool next(TextPart& part);
  int64_t bytes() const { return bytes_; }  ///< of all parts so far

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

/// work(thread, part) of as many parts at a time as there are threads, then round(parts).
/// @throws what work() throws
void for_parts(
    Documents& documents, int threads, const std::function<void(size_t, const TextPart&)>& work,
    const std::function<void(size_t)>& round = [](size_t) {});

}  // namespace ladder
