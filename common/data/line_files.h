// The lines of files, in parts of about 256 KiB. So the memory does not depend on the size of the
// files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/input_file.h"

namespace ladder {

/// Whole lines that follow each other in one file.
struct LinePart {
  struct Line {
    size_t begin, bytes;  ///< in the text, without the end of the line
    bool too_long;        ///< longer than is legal; its text does not count
  };

  std::string text;
  std::vector<Line> lines;
  size_t file = 0;      ///< which file the lines are from
  int64_t number = 0;   ///< of the first line in its file, from 1 on
  int64_t ordinal = 0;  ///< of the first line among the lines of all files, from 0 on

  std::string_view line(size_t i) const {
    return std::string_view(text).substr(lines[i].begin, lines[i].bytes);
  }
};

/// Files of lines.
class LineFiles {
 public:
  /// @param flag    the flag that gave the paths, for messages
  /// @param longest how many bytes a line may have
  /// @throws UserError naming a file that cannot be read
  LineFiles(const std::vector<std::string>& paths, std::string_view flag, int64_t longest);

  /// Reads the next part. @return false if there is none @throws UserError naming the file
  bool next(LinePart& part);
  /// Goes back to the first line.
  void rewind();
  /// "--data x.jsonl: line 7"
  std::string name_of(const LinePart& part, size_t line) const;
  const std::vector<InputFile>& files() const { return files_; }

 private:
  bool fill(std::string& text);
  void skip_long(LinePart& part);

  std::vector<InputFile> files_;
  int64_t longest_;
  size_t file_ = 0;
  int64_t at_ = 0;         ///< in the file
  std::string left_over_;  ///< the beginning of a line
  int64_t number_ = 1, ordinal_ = 0;
};

}  // namespace ladder
