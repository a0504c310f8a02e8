#include "common/tokens/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <list>
#include <sstream>

#include "common/error.h"
#include "common/input_file.h"
#include "common/json.h"
#include "common/number_in.h"
#include "common/output_file.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kMostBytes = int64_t{256} << 20;
constexpr const char *kRanks = "ranks.tiktoken", *kModel = "tokenizer.model";  // Llama 3's
// What lies beside may say which token ends a text.
constexpr const char *kModelConfig = "config.json", *kSpecialFile = "special_tokens_map.json";
constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i)
      group = group << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0);
    for (size_t i = 0; i < 4; ++i)
      text += at + i > bytes.size() ? '=' : kDigits[group >> (18 - 6 * i) & 63];
  }
  return text;
}

/// Decodes base64. nullopt if the text is none.
std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return {};
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return {};
    bits = bits << 6 | static_cast<uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 0xFF);
  }
  return bytes;
}

/// Calls f(line, number) for each line that is not empty.
void for_lines(const std::string& path, const std::function<void(std::string_view, int64_t)>& f) {
  std::istringstream lines(read_small_file(path, kMostBytes));
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) f(line, number);
  }
}

Tokenizer read_json_tokenizer(const std::string& path) {
  return tokenizer_from_json(parse_json(read_small_file(path, kMostBytes)));
}

/// A file of JSON beside a tokenizer; null if there is none.
json beside(const fs::path& tokenizer, const char* name) {
  const fs::path path = tokenizer.parent_path() / name;
  std::error_code ignored;
  return fs::exists(path, ignored) ? read_json(path.string()) : json();
}

/// The token of a role such as "eos_token"; empty if the file names none.
std::string token_of(const json& file, const std::string& role) {
  if (!file.is_object() || !file.contains(role)) return "";
  const json& token = file.at(role);
  if (token.is_string()) return token;
  return token.is_object() && token.contains("content") && token.at("content").is_string()
             ? token.at("content").get<std::string>()
             : "";
}

bool has_ranks(const fs::path& path) {
  return path.extension() == ".tiktoken" || path.filename() == kModel;
}

/// A file of ranks has no special tokens, so no file beside it can name the one that ends a text.
void find_end_of_text(Tokenizer& tokenizer, const fs::path& path, std::optional<int64_t> given) {
  if (given) return tokenizer.end_texts_with(*given);
  if (has_ranks(path)) return;
  for (const char* name : {kTokenizerConfigFile, kSpecialFile}) {
    const std::string token = token_of(beside(path, name), "eos_token");
    if (token.empty()) continue;
    const auto at = tokenizer.added.find(token);
    if (at == tokenizer.added.end())
      throw UserError("{} says that {} ends a text, and no added token is that; --end-of-text ID",
                      name, token);
    return tokenizer.end_texts_with(at->second.id);
  }
  const json config = beside(path, kModelConfig);
  if (config.is_object() && config.contains("eos_token_id") &&
      config.at("eos_token_id").is_number_integer())
    return tokenizer.end_texts_with(config.at("eos_token_id").get<int64_t>());
  for (const char* name : {kEndOfText, "<|end_of_text|>"})
    if (const auto at = tokenizer.added.find(name);
        at != tokenizer.added.end() && at->second.special)
      return tokenizer.end_texts_with(at->second.id);
}

/// Lines "token in base64, blank, rank".
Tokenizer read_ranks(const std::string& path, const TokenizerHints& hints) {
  if (!hints.split)
    throw UserError("ranks do not say how a text is split; --split of ch24_tokenizer does: {}",
                    fmt::format("{}", fmt::join(kNames<Split>, ", ")).c_str());
  TokenizerBuilder builder(*hints.split);
  for_lines(path, [&](std::string_view line, int64_t number) {
    const size_t blank = line.find(' ');
    const auto bytes = from_base64(line.substr(0, blank));
    const auto rank = number_in<int64_t>(line.substr(std::min(blank, line.size() - 1) + 1));
    if (!bytes || !rank)
      throw UserError("line {} is {}; legal is a token in base64, a blank, and its rank", number,
                      std::string(line));
    builder.add_token(*bytes, *rank, line);
  });
  builder.merge_by_rank();
  if (hints.end_of_text) builder.add_added(kEndOfText, {}, *hints.end_of_text);
  return builder.finish();
}

/// The file of a tokenizer in a directory.
std::string file_in(const std::string& directory) {
  for (const char* name : {kTokenizerFile, kRanks, kModel})
    if (fs::exists(fs::path(directory) / name)) return (fs::path(directory) / name).string();
  for (const std::string& name : names_in(directory))
    if (name.ends_with(".tiktoken")) return (fs::path(directory) / name).string();
  throw UserError("holds neither {} nor *.tiktoken", kTokenizerFile);
}

Tokenizer read_file(const std::string& path, const TokenizerHints& hints) {
  if (hints.split && !has_ranks(path))
    throw UserError("--split is for a file of ranks; this one says it itself");
  if (path.ends_with(".json")) return read_json_tokenizer(path);
  if (has_ranks(path)) return read_ranks(path, hints);
  throw UserError("is no file of a tokenizer; legal are {}, *.tiktoken, and their folder",
                  kTokenizerFile);
}

std::string ranks_text(const Tokenizer& tokenizer) {
  std::string text;
  for (uint32_t id = 0; id < tokenizer.tokens.size(); ++id)
    if (!tokenizer.tokens[id].empty() && !tokenizer.added_token(id))
      text += fmt::format("{} {}\n", to_base64(tokenizer.tokens[id]), id);
  return text;
}

}  // namespace

Tokenizer read_tokenizer(const std::string& path, const TokenizerHints& hints) {
  std::string file = path;
  try {
    if (!fs::exists(path)) throw UserError("no such file or directory");
    if (fs::is_directory(path)) file = file_in(path);
    Tokenizer tokenizer = read_file(file, hints);
    find_end_of_text(tokenizer, file, hints.end_of_text);
    return tokenizer;
  } catch (const UserError& e) {
    if (std::string_view(e.what()).starts_with(file)) throw;
    throw UserError("--tokenizer {}: {}", file, e.what());
  } catch (const fs::filesystem_error& e) {
    throw UserError("--tokenizer {}: {}", file, e.code().message());
  }
}

std::map<std::string, std::string> hf_tokenizer_files(const Tokenizer& tokenizer) {
  ordered_json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                      {"clean_up_tokenization_spaces", false}};
  if (tokenizer.end_of_text)
    for (const char* name : {"bos_token", "eos_token", "unk_token"})
      config[name] = tokenizer.tokens[*tokenizer.end_of_text];
  return {{kTokenizerFile, tokenizer_to_json(tokenizer).dump(2) + "\n"},
          {kTokenizerConfigFile, config.dump(2) + "\n"}};
}

void check_tokenizer_place(const std::string& directory, const NamedPaths& taken) {
  const fs::path in = directory;
  std::error_code ignored;
  if (fs::exists(in / kModelConfig, ignored))
    throw UserError(
        "--out {}: holds a model, whose tokenizer is not replaced; legal is another directory",
        directory);
  for (const char* name : {kTokenizerFile, kTokenizerConfigFile, kRanks})
    require_own_place({"--out", (in / name).string()}, taken);
}

void write_tokenizer(const std::string& directory, const Tokenizer& tokenizer) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  if (failed) throw UserError("--out {}: cannot be made: {}", directory, failed.message());
  const fs::path in = directory;
  // All files are on the disk before the first of them gets its name. So the old files stay, or all
  // of them are replaced.
  std::list<OutputFile> files;
  std::map<std::string, std::string> texts = hf_tokenizer_files(tokenizer);
  texts[kRanks] = ranks_text(tokenizer);
  for (const auto& [name, text] : texts) {
    files.emplace_back((in / name).string(), "--out");
    files.back().write(text);
    files.back().sync();
  }
  for (OutputFile& file : files) file.commit();
}

}  // namespace ladder
