#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "common/json.h"
#include "common/tokens/tokenizer_files.h"

namespace ladder {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// A pattern as files spell it. Of several spellings of a split, the first is written.
struct Pattern {
  Split split;
  const char* text;
};
constexpr std::array kPatterns = {
    Pattern{Split::Gpt2,
            R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    Pattern{Split::Gpt2,
            R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    Pattern{Split::Gpt2,
            R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)"},
    Pattern{
        Split::Llama3,
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    Pattern{
        Split::Cl100k,
        R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]|\s+(?!\S)|\s)"},
    Pattern{
        Split::Cl100k,
        R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)"}};

const json& field(const json& object, const char* name) {
  static const json none;
  return object.is_object() && object.contains(name) ? object.at(name) : none;
}

/// Whether a field has one of the values, or is absent.
void require(const json& object, const char* name, std::initializer_list<json> legal) {
  const json& value = field(object, name);
  if (value.is_null() || std::ranges::find(legal, value) != legal.end()) return;
  throw UserError("{} is {}; legal is {}", name, shown(value), shown(*legal.begin()));
}

void require_bytes_alone(const json& step) {
  require(step, "add_prefix_space", {false});
  require(step, "use_regex", {false});
}

/// ByteLevel, which has GPT-2's pattern; or Split with a pattern, and ByteLevel without.
Split split_of(const json& pre) {
  const auto other = [&]() -> UserError {
    return UserError(
        "pre_tokenizer is {}; legal are ByteLevel, and Split with the pattern of {}, "
        "then ByteLevel",
        shown(pre), fmt::format("{}", fmt::join(kNames<Split>, ", ")).c_str());
  };
  if (field(pre, "type") == "ByteLevel") {
    require(pre, "add_prefix_space", {false});
    require(pre, "use_regex", {true});
    return Split::Gpt2;
  }
  const json& steps = field(pre, "pretokenizers");
  if (field(pre, "type") != "Sequence" || !steps.is_array() || steps.size() != 2) throw other();
  if (field(steps[0], "type") != "Split" || field(steps[1], "type") != "ByteLevel") throw other();
  require_bytes_alone(steps[1]);
  const bool isolates =
      field(steps[0], "behavior") == "Isolated" && field(steps[0], "invert") == false;
  const json& pattern = field(field(steps[0], "pattern"), "Regex");
  for (const auto& [split, text] : kPatterns)
    if (isolates && pattern == text) return split;
  throw other();
}

void check_model(const json& root) {
  const json& model = field(root, "model");
  if (!model.is_object()) throw UserError("no model; it is not the file of a tokenizer");
  if (const json& type = field(model, "type"); !type.is_null() && type != "BPE")
    throw UserError("the model is of type {}; legal is BPE", shown(type));
  for (const char* name :
       {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
    require(model, name, {nullptr, "", 0.0});
  require(model, "byte_fallback", {false});
  for (const char* name : {"normalizer", "truncation", "padding"}) require(root, name, {nullptr});
}

int64_t id_of(const json& value, const std::string& token) {
  if (!value.is_number_integer()) throw UserError("token {} has the id {}", token, shown(value));
  return value.get<int64_t>();
}

struct Added {
  std::string content;
  int64_t id;
  AddedToken token;
};

std::vector<Added> added_tokens(const json& root) {
  std::vector<Added> all;
  const json& list = field(root, "added_tokens");
  if (!list.is_array() && !list.is_null()) throw UserError("added_tokens is no list");
  for (const json& token : list) {
    const json& content = field(token, "content");
    if (!content.is_string()) throw UserError("a token of added_tokens has no content");
    const auto text = content.get<std::string>();
    try {
      for (const char* name : {"single_word", "lstrip", "rstrip"}) require(token, name, {false});
    } catch (const UserError& e) {
      throw UserError("added token {}: {}", text, e.what());
    }
    all.push_back({text,
                   id_of(field(token, "id"), text),
                   {.id = 0,
                    .special = field(token, "special") == true,
                    .normalized = field(token, "normalized") == true}});
  }
  return all;
}

void add_vocab(TokenizerBuilder& builder, const json& vocab, const std::vector<Added>& added) {
  if (!vocab.is_object()) throw UserError("the model has no vocab");
  std::set<std::string_view> names;
  for (const Added& token : added) names.insert(token.content);
  for (const auto& [token, id] : vocab.items()) {
    if (names.contains(token)) continue;
    const auto bytes = from_alphabet(token);
    if (!bytes) throw UserError("token {} has a character that stands for no byte", shown(token));
    builder.add_token(*bytes, id_of(id, token), token);
  }
  for (const auto& [content, id, token] : added) builder.add_added(content, token, id);
}

/// ["a", "b"], or "a b".
std::pair<std::string, std::string> merge_of(const json& merge, size_t number) {
  std::string left, right;
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    left = merge[0].get<std::string>();
    right = merge[1].get<std::string>();
  } else if (merge.is_string()) {
    const auto text = merge.get<std::string>();
    const size_t blank = text.find(' ');
    left = text.substr(0, blank);
    right = blank == std::string::npos ? "" : text.substr(blank + 1);
  }
  const auto a = from_alphabet(left), b = from_alphabet(right);
  if (!a || !b || a->empty() || b->empty())
    throw UserError(R"(merge {} is {}; legal are ["a", "b"] and "a b")", number, shown(merge));
  return {*a, *b};
}

}  // namespace

Tokenizer tokenizer_from_json(const json& root) {
  check_model(root);
  const json& model = root.at("model");
  TokenizerBuilder builder(split_of(field(root, "pre_tokenizer")));
  add_vocab(builder, field(model, "vocab"), added_tokens(root));
  const json& merges = field(model, "merges");
  if (!merges.is_array()) throw UserError("the model has no list of merges");
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto [left, right] = merge_of(merges[i], i);
    builder.add_merge(left, right);
  }
  Tokenizer made = builder.finish();
  made.whole_words = field(model, "ignore_merges") == true;
  return made;
}

ordered_json tokenizer_to_json(const Tokenizer& tokenizer) {
  const ordered_json bytes{{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", tokenizer.split == Split::Gpt2}};
  ordered_json pre = bytes;
  if (tokenizer.split != Split::Gpt2) {
    const auto* pattern = std::ranges::find(kPatterns, tokenizer.split, &Pattern::split);
    const ordered_json split{{"type", "Split"},
                             {"pattern", {{"Regex", pattern->text}}},
                             {"behavior", "Isolated"},
                             {"invert", false}};
    pre = {{"type", "Sequence"}, {"pretokenizers", ordered_json::array({split, bytes})}};
  }
  ordered_json added = ordered_json::array(), vocab = ordered_json::object(),
               merges = ordered_json::array();
  for (uint32_t id = 0; id < tokenizer.tokens.size(); ++id) {
    const std::string& token = tokenizer.tokens[id];
    const AddedToken* known = tokenizer.added_token(id);
    if (known)
      added.push_back({{"id", id},
                       {"content", token},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", known->normalized},
                       {"special", known->special}});
    if (!token.empty()) vocab[known ? token : to_alphabet(token)] = id;
  }
  for (const Merge& m : tokenizer.merges)
    merges.push_back(
        {to_alphabet(tokenizer.tokens[m.left]), to_alphabet(tokenizer.tokens[m.right])});
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", pre},
          {"post_processor", bytes},
          {"decoder", bytes},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", tokenizer.whole_words},
            {"vocab", vocab},
            {"merges", merges}}}};
}

}  // namespace ladder
