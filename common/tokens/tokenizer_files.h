// Tokenizers in files of other programs: Hugging Face's tokenizer.json, and tiktoken's files of
// ranks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/own_place.h"
#include "common/tokens/tokenizer.h"

namespace ladder {

inline constexpr const char* kTokenizerFile = "tokenizer.json";
inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";

/// What a file of a tokenizer may leave open.
struct TokenizerHints {
  std::optional<Split> split = {};          ///< for a file of ranks; the other files say it
  std::optional<int64_t> end_of_text = {};  ///< an id, which counts more than what files say
};

/// @param path one of these files, or a directory with one kind of them. A file of ranks is called
///             *.tiktoken or tokenizer.model. Which token ends a text is read from what lies
///             beside it: eos_token of tokenizer_config.json or special_tokens_map.json, or
///             eos_token_id of config.json. Otherwise it is <|endoftext|> or <|end_of_text|>, if
///             a special token is called so.
/// @throws UserError naming the file, and what in it is not legal
Tokenizer read_tokenizer(const std::string& path, const TokenizerHints& hints = {});

/// Checks that write_tokenizer(directory) replaces neither what is `taken` nor the tokenizer of a
/// model or of a checkpoint. @throws UserError
void check_tokenizer_place(const std::string& directory, const NamedPaths& taken);

/// Makes `directory` and writes into it: tokenizer.json, tokenizer_config.json and ranks.tiktoken.
/// @throws UserError
void write_tokenizer(const std::string& directory, const Tokenizer& tokenizer);

/// The two files that transformers need, by name: tokenizer.json, and tokenizer_config.json, which
/// says PreTrainedTokenizerFast.
std::map<std::string, std::string> hf_tokenizer_files(const Tokenizer& tokenizer);

/// From and to the content of tokenizer.json. @throws UserError; the caller names the file
Tokenizer tokenizer_from_json(const nlohmann::json& root);
nlohmann::ordered_json tokenizer_to_json(const Tokenizer& tokenizer);

/// Builds a Tokenizer from the content of files, and refuses contradictions.
class TokenizerBuilder {
 public:
  explicit TokenizerBuilder(Split split) { made_.split = split; }
  /// @param bytes the token
  /// @param shown the token as the file writes it, for messages
  /// @throws UserError if the id is taken or out of range, or if another token has these bytes
  void add_token(const std::string& bytes, int64_t id, std::string_view shown);
  /// Adds a token that a text may spell.
  void add_added(const std::string& text, AddedToken token, int64_t id);
  /// Adds the next merge, of two tokens given by their bytes. @throws UserError if one is unknown
  void add_merge(const std::string& left, const std::string& right);
  /// Adds a merge for each pair of tokens that together are a token. This is what the ranks of
  /// tiktoken mean.
  void merge_by_rank();
  /// @throws UserError if an id or a byte is missing
  Tokenizer finish();

 private:
  void put(const std::string& bytes, int64_t id, std::string_view shown);
  std::optional<uint32_t> id_of(const std::string& bytes) const;
  void check_ids() const;

  Tokenizer made_;                          ///< without its tokens
  std::map<uint32_t, std::string> tokens_;  ///< by id: a gap takes no memory
  std::map<std::string, uint32_t, std::less<>> ids_;
  std::map<std::pair<uint32_t, uint32_t>, size_t> pairs_;
};

}  // namespace ladder
