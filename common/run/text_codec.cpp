#include "common/run/text_codec.h"

#include <sstream>

#include "common/error.h"

namespace ladder {
namespace {

constexpr int64_t kBytes = 256;

}  // namespace

void CodecOptions::add_to(CommandLine& line) {
  line.group("Texts");
  line.add("--tokenizer", tokenizer, "the model's tokenizer, where --load holds none");
  line.add(
      "--tokens", tokens,
      "what a token is. auto: what the tokenizer says; without one a byte, if the model has 256 "
      "tokens. ids: texts are numbers, separated by blanks");
  line.add("--stop", stop, "an answer ends before each of these texts");
}

TextCodec::TextCodec(const CodecOptions& options, const std::string& load, int64_t vocab)
    : kind_(options.tokens), vocab_(vocab), end_(options.end) {
  if (kind_ == TextTokens::Auto) tokenizer_ = find_tokenizer(options.tokenizer, load);
  if (kind_ == TextTokens::Auto && !tokenizer_) {
    if (vocab != kBytes)
      throw UserError(
          "--load {}: a vocabulary of {} and no tokenizer; legal are --tokenizer, --tokens bytes "
          "and --tokens ids",
          load, vocab);
    kind_ = TextTokens::Bytes;
  }
  if (kind_ == TextTokens::Bytes) vocab_ = kBytes;
  if (vocab_ > vocab)
    throw UserError(
        "--load {}: a vocabulary of {} has no token for each byte; legal is --tokens ids", load,
        vocab);
  if (!tokenizer_) return;
  const Tokenizer& tokenizer = tokenizer_->tokenizer;
  vocab_ = tokenizer.vocab();
  if (vocab_ > vocab)
    throw UserError("the tokenizer has {} tokens, and the model {}", vocab_, vocab);
  encoder_ = std::make_unique<Encoder>(tokenizer, options.special);
  if (!end_ && tokenizer.end_of_text) end_ = static_cast<int32_t>(*tokenizer.end_of_text);
}

std::vector<int32_t> TextCodec::encode(const std::string& text) const {
  std::vector<int32_t> tokens;
  if (kind_ == TextTokens::Ids) {
    std::istringstream words(text);
    for (std::string word; words >> word;) tokens.push_back(id_of(word));
  } else if (tokenizer_) {
    std::vector<uint32_t> ids;
    encoder_->encode(text, ids);
    tokens.assign(ids.begin(), ids.end());
  } else {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  }
  if (tokens.empty()) tokens.push_back(tokenizer_ ? end_.value_or(0) : '\n');
  return tokens;
}

std::string TextCodec::decode(std::span<const int32_t> tokens) const {
  if (kind_ == TextTokens::Ids) return fmt::format("{}", fmt::join(tokens, " "));
  if (!tokenizer_) return {tokens.begin(), tokens.end()};
  std::string text;
  for (const int32_t token : tokens)
    if (!tokenizer_->tokenizer.is_special(static_cast<uint32_t>(token)))
      text += tokenizer_->tokenizer.tokens[static_cast<size_t>(token)];
  return text;
}

int32_t TextCodec::id_of(const std::string& word) const {
  const bool number = word.size() < 10 && word.find_first_not_of("0123456789") == std::string::npos;
  if (!number || std::stoll(word) >= vocab_)
    throw UserError("{} is no token; legal with --tokens ids are 0 to {}", word, vocab_ - 1);
  return static_cast<int32_t>(std::stoll(word));
}

}  // namespace ladder
