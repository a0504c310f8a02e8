// Tokenizers in the files of others: tokenizer.json of Hugging Face, vocab.json with merges.txt of
// GPT-2, and ranks as tiktoken has them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/tokens/tokenizer.h"

namespace ladder {

inline constexpr const char* kTokenizerFile = "tokenizer.json";
inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";

/// What a file of ranks does not say; the other files know it themselves.
struct TokenizerHints {
  std::optional<Split> split = {};
  std::optional<int64_t> end_of_text = {};  ///< the id of <|endoftext|>
};

/// @param path a directory with tokenizer.json, or vocab.json and merges.txt, or one file of ranks
///             (*.tiktoken, tokenizer.model); or one of these files
/// @throws UserError naming the file and what of it is not legal
Tokenizer read_tokenizer(const std::string& path, const TokenizerHints& hints = {});

/// Makes `directory` and writes into it: tokenizer.json and tokenizer_config.json, vocab.json and
/// merges.txt, and ranks.tiktoken. @throws UserError
void write_tokenizer(const std::string& directory, const Tokenizer& tokenizer);

/// Of these files the two that transformers need, by name: tokenizer.json, and
/// tokenizer_config.json, which says PreTrainedTokenizerFast.
std::map<std::string, std::string> hf_tokenizer_files(const Tokenizer& tokenizer);

/// What is in tokenizer.json. @throws UserError, for the caller to name the file
Tokenizer tokenizer_from_json(const nlohmann::json& root);
nlohmann::ordered_json tokenizer_to_json(const Tokenizer& tokenizer);

/// Builds a Tokenizer from what files say, and refuses what contradicts itself.
class TokenizerBuilder {
 public:
  explicit TokenizerBuilder(Split split) { made_.split = split; }
  /// @param bytes of the token @param shown as the file writes it @throws UserError if the id is
  ///        taken, out of range, or another one has these bytes
  void add_token(std::string bytes, int64_t id, std::string_view shown);
  /// A special token, which may be one that was added before.
  void add_special(const std::string& text, int64_t id);
  /// The next merge, of two tokens by their bytes. @throws UserError if it is of unknown tokens
  void add_merge(const std::string& left, const std::string& right);
  /// All pairs of tokens that make a token: what the ranks of tiktoken mean.
  void merge_by_rank();
  /// @throws UserError if an id or a byte is missing
  Tokenizer finish();

 private:
  std::optional<uint32_t> id_of(const std::string& bytes) const;
  void check_ids() const;

  Tokenizer made_;
  std::map<std::string, uint32_t, std::less<>> ids_;
  std::map<std::pair<uint32_t, uint32_t>, size_t> pairs_;
};

}  // namespace ladder
