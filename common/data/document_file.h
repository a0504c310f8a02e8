// A token file that holds documents, one after the other.
//
// Either a file X.idx beside X.bin, which is Megatron's index, says where documents end; or each
// document ends with a certain token; or the file has been encoded, and each line was a document.
// Parts of the index are read when they are needed. Without an index, the ends are kept in memory:
// 8 bytes for each document.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/data/text.h"
#include "common/input_file.h"
#include "kernels/tree.h"

namespace ladder {

/// Gives documents by their number, as tokens of the file.
class DocumentFile {
 public:
  /// Reads the whole index, or without one the whole file, once.
  /// @param end_of_text the token that ends a document; none: there is an index, or options.encoded
  /// has the ends
  /// @throws UserError naming the file if it cannot be read, if it has no index, or one of other
  /// tokens, or if no document ends with that token
  DocumentFile(const TextOptions& options, std::optional<int64_t> end_of_text);

  /// X.idx for X.bin, whether it exists or not.
  static std::string index_of(const std::string& path);

  const std::string& name() const { return file_->name(); }
  int64_t count() const { return count_; }
  /// Which tokens document i has, with the token that ends it. A document may have no tokens.
  Range document(int64_t i) const;
  /// tokens = those from `begin` on. A token t that is read but not learned becomes ~t, so that the
  /// mask travels with its token (chapter 36).
  /// @throws UserError if the file has changed, cannot be read, or has a token that is not below
  /// the vocabulary
  void read(int64_t begin, std::span<int32_t> tokens) const;
  /// Counts the `targets` tokens that follow token `begin`, and their bytes.
  /// @throws UserError as read() does
  TargetCount count_targets(int64_t begin, int64_t targets) const;

 private:
  void find_ends(int64_t end_of_text);
  void open_index();
  void check_index();
  std::vector<Range> indexed(int64_t first, int64_t count) const;

  TextOptions options_;
  std::shared_ptr<const InputFile> file_;
  int64_t size_;  ///< tokens
  int64_t count_ = 0;
  std::optional<InputFile> index_;
  std::vector<int64_t> ends_;  ///< without an index
};

}  // namespace ladder
