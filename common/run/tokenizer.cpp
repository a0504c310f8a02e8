#include "common/run/tokenizer.h"

#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>

#include "common/error.h"
#include "common/run/options.h"
#include "common/save/directory.h"
#include "common/tokens/encode_files.h"
#include "common/tokens/token_file.h"
#include "common/tokens/tokenizer_files.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const RunTokenizer> read(const std::string& path) {
  Tokenizer tokenizer = read_tokenizer(path);
  std::string hash = fingerprint(tokenizer);
  auto bytes = std::make_shared<const std::vector<int32_t>>(token_bytes(tokenizer));
  return std::make_shared<const RunTokenizer>(
      RunTokenizer{path, std::move(tokenizer), std::move(hash), std::move(bytes)});
}

/// The one beside the weights, which nobody has asked for.
std::shared_ptr<const RunTokenizer> read_beside(const std::string& load) try {
  return read(load);
} catch (const UserError& e) {
  throw UserError("{}; --tokens bytes takes --data without it", e.what());
}

bool has_tokenizer(const std::string& directory) {
  std::error_code ignored;
  return !directory.empty() && fs::exists(fs::path(directory) / kTokenizerFile, ignored);
}

class MemoryTokens : public TokenSink {
 public:
  explicit MemoryTokens(EncodedText& out) : out_(out), width_(static_cast<size_t>(out.width)) {}

  void write(std::span<const uint32_t> ids) override {
    const size_t begin = out_.bytes.size();
    out_.bytes.resize(begin + ids.size() * width_);
    for (size_t i = 0; i < ids.size(); ++i)  // for a little-endian machine
      std::memcpy(out_.bytes.data() + begin + i * width_, &ids[i], width_);
  }
  void end_document() override { out_.ends.push_back(std::ssize(out_.bytes) / out_.width); }

 private:
  EncodedText& out_;
  size_t width_;
};

}  // namespace

std::shared_ptr<const RunTokenizer> find_tokenizer(const std::string& path,
                                                   const std::string& folder) {
  // Where links are lost, it lies only in the generation. An empty path would be this directory.
  const std::string load = folder.empty() || has_tokenizer(folder)
                               ? folder
                               : checkpoint_in(folder).value_or(folder).string();
  const bool there = has_tokenizer(load);
  if (path.empty()) return there ? read_beside(load) : nullptr;
  auto given = read(path);
  const auto beside = there ? read(load) : nullptr;
  if (beside && beside->hash != given->hash)
    throw UserError(
        "--tokenizer {} has {} tokens (hash {}), and --load {} was trained with another of {} "
        "tokens (hash {}); legal is --tokenizer {}",
        path, given->tokenizer.vocab(), given->hash, load, beside->tokenizer.vocab(), beside->hash,
        load);
  return given;
}

std::shared_ptr<const EncodedText> encode(const RunTokenizer& tokenizer, const std::string& text,
                                          int threads) {
  const TokenKind kind = token_kind(TokenKind::Auto, tokenizer.tokenizer);
  EncodedText encoded{.width = kind == TokenKind::Uint16 ? 2 : 4, .bytes = {}, .ends = {}};
  MemoryTokens tokens(encoded);
  encode_files(tokenizer.tokenizer, {text}, {.utf8 = Utf8::Bytes, .threads = threads}, tokens);
  return std::make_shared<const EncodedText>(std::move(encoded));
}

std::string tokens_text(const RunOptions& options) {
  const RunTokenizer& known = *options.text_tokenizer;
  const std::shared_ptr<const EncodedText>& text = options.encoded;
  return fmt::format(
      "tokens  {} of {}{}", known.tokenizer.vocab(), known.path,
      text ? fmt::format("; --data has {}", std::ssize(text->bytes) / text->width) : "");
}

// The check of a lab may have no text.
LossTargets targets_of(const RunOptions& options, const GptConfig& gpt) {
  if (options.data.empty())
    return {[](int64_t, int64_t tokens) { return TargetCount{.targets = tokens}; },
            [] { return TargetCount{}; }};
  const auto text = std::make_shared<const Text>(options.text(gpt));
  return {[=, seed = options.seed](int64_t step, int64_t tokens) {
            return text->step_targets(seed, step, tokens / gpt.seq_len);
          },
          [=] { return text->validation_targets(); }};
}

}  // namespace ladder
