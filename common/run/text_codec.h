// What prompts and answers are made of: bytes, tokens of a tokenizer, or numbers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/names.h"
#include "common/run/command_line.h"
#include "common/run/tokenizer.h"
#include "common/tokens/encoder.h"

namespace ladder {

/// What a token stands for.
enum class TextTokens : uint8_t { Auto, Bytes, Ids };
constexpr auto names_of(TextTokens) { return std::array{"auto", "bytes", "ids"}; }

/// How a program reads and writes texts.
struct CodecOptions {
  std::string tokenizer;
  TextTokens tokens = TextTokens::Auto;
  std::vector<std::string> stop;  ///< texts that end an answer
  bool special = false;           ///< a text that spells a special token is that token (chapter 35)
  std::optional<int32_t> end = {};  ///< ends a text instead of the tokenizer's (chapter 36)

  void add_to(CommandLine& line);
};

/// Text to tokens and back.
class TextCodec {
 public:
  /// @param load, vocab the model's. @throws UserError
  TextCodec(const CodecOptions& options, const std::string& load, int64_t vocab);

  int64_t vocab() const { return vocab_; }  ///< tokens below it may be drawn
  std::optional<int32_t> end_of_text() const { return end_; }

  /// An empty text is a newline, or the token that ends a text. @throws UserError
  std::vector<int32_t> encode(const std::string& text) const;
  std::string decode(std::span<const int32_t> tokens) const;

 private:
  int32_t id_of(const std::string& word) const;

  TextTokens kind_;
  int64_t vocab_;
  std::shared_ptr<const RunTokenizer> tokenizer_;
  std::unique_ptr<Encoder> encoder_;
  std::optional<int32_t> end_;
};

}  // namespace ladder
