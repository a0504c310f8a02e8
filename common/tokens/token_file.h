// Token files: plain numbers one after the other, which --tokens of the chapters reads and NumPy's
// tofile() writes. Megatron reads the same files if an index is beside them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/input_file.h"
#include "common/names.h"
#include "common/output_file.h"
#include "common/text_format.h"
#include "common/tokens/tokenizer.h"

namespace ladder {

/// Which files a TokenWriter writes.
enum class TokenFile : uint8_t {
  Raw,      ///< only X.bin
  Megatron  ///< X.bin, and X.idx with the length of each document
};
constexpr auto names_of(TokenFile) { return std::array{"raw", "megatron"}; }

/// X.bin -> X.idx, which Megatron reads with it. @throws UserError for another name
std::string index_path(const std::string& path);

/// The type of tokens in a file that is written. Auto becomes the narrowest type for the
/// vocabulary.
/// @throws UserError if the vocabulary is too large for the type
TokenKind token_kind(TokenKind given, const Tokenizer& tokenizer);

/// Takes tokens, document by document.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void write(std::span<const uint32_t> ids) = 0;
  virtual void end_document() = 0;
};

/// Writes X.bin. Before commit() there is no file under the final names.
class TokenWriter : public TokenSink {
 public:
  /// @param what for messages @throws UserError if the files cannot be made
  TokenWriter(const std::string& path, TokenFile file, TokenKind kind,
              const std::string& what = "--out");
  /// @throws UserError if the disk is full
  void write(std::span<const uint32_t> ids) override;
  void end_document() override;
  void commit();
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return std::ssize(ends_); }

 private:
  std::string index() const;

  int64_t width_;
  OutputFile file_;
  std::optional<OutputFile> index_;
  std::string buffer_;
  int64_t tokens_ = 0;
  std::vector<int64_t> ends_;  ///< of documents, in tokens
};

/// Calls f(ids) for the tokens of a file, part by part. @throws UserError naming the file
template <class F>
void for_tokens(const std::string& path, TokenKind kind, int64_t vocab, F&& f) {
  constexpr int64_t kTokens = 1 << 18;
  const InputFile file(path, "--data");
  const TextFormat format = find_format(file, kind, vocab);
  const int64_t count = format.count(file.size());
  std::vector<uint32_t> ids;
  for (int64_t at = 0; at < count; at += kTokens) {
    ids.resize(static_cast<size_t>(std::min(kTokens, count - at)));
    read_tokens(file, format, vocab, at, std::span(ids));
    f(std::span<const uint32_t>(ids));
  }
}

}  // namespace ladder
