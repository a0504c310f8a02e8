// Chats as tokens, and which of these tokens are learned.
//
// A line of the file is {"messages": [{"role": "user", "content": "..."}, ...]}. A template says
// how a chat is spelled:
//
//   chatml   <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n
//   plain    user:\nHi<|endoftext|>assistant:\nHo<|endoftext|>
//
// Here <|im_start|>, <|im_end|> and <|endoftext|> are single tokens. No text becomes one of them:
// they are put between texts that are encoded without them. So a user who writes <|im_end|> ends
// nothing.
//
// What is learned is what the model must write itself: the text of the assistant, and the token
// that ends it. Without that token in the loss the model would never stop. All other tokens are
// read, and no position learns them. They stay in the row: a mask leaves no gap.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/data/line_files.h"
#include "common/data/text.h"
#include "common/error.h"
#include "common/json.h"
#include "common/names.h"
#include "common/run/command_line.h"
#include "common/run/tokenizer.h"
#include "common/tokens/encoder.h"

namespace ladder {

enum class Template : uint8_t { Auto, Plain, ChatMl };
constexpr auto names_of(Template) { return std::array{"auto", "plain", "chatml"}; }

/// Which targets count.
enum class Learn : uint8_t { Answers, Text, All };
constexpr auto names_of(Learn) { return std::array{"answers", "text", "all"}; }

struct ChatOptions {
  Template form = Template::Auto;
  Learn learn = Learn::Answers;

  void add_to(CommandLine& line) {
    line.group("36_finetune: chats");
    line.add("--template", form,
             "how a chat is spelled; auto: chatml if the tokenizer has its tokens, else plain");
    line.add("--learn", learn,
             "answers: the assistant's text and the token that ends it; all: every token; text: an "
             "experiment, which leaves out the end");
  }
};

/// A chat as it is read: tokens, and whether each is learned.
struct ChatTokens {
  std::vector<int32_t> tokens;
  std::vector<bool> learned;

  void add(std::span<const int32_t> more, bool learn) {
    tokens.insert(tokens.end(), more.begin(), more.end());
    learned.resize(tokens.size(), learn);
  }
  /// Forgets all tokens behind the first `most`.
  void cut(size_t most) {
    tokens.resize(std::min(tokens.size(), most));
    learned.resize(tokens.size());
  }
  /// The first token does not count: no position has it as its target.
  bool has_target() const {
    return std::find(learned.begin() + 1, learned.end(), true) != learned.end();
  }
};

/// Spells chats. Without a tokenizer tokens are bytes, and two bytes that no UTF-8 has stand for
/// the special tokens.
class Speller {
 public:
  static constexpr int32_t kByteStart = 0xFE, kByteEnd = 0xFF;

  /// @param tokenizer null: bytes. It must outlive this
  /// @throws UserError if the tokenizer lacks the template's tokens
  Speller(const Tokenizer* tokenizer, Template form) : tokenizer_(tokenizer) {
    const bool has = !tokenizer || (find("<|im_start|>") && find("<|im_end|>"));
    chatml_ = form == Template::ChatMl || (form == Template::Auto && tokenizer && has);
    if (chatml_ && !has)
      throw UserError(
          "--template chatml: the tokenizer lacks <|im_start|> or <|im_end|>; legal is plain");
    if (tokenizer) encoder_ = std::make_unique<Encoder>(*tokenizer);
    if (chatml_) start_ = tokenizer ? *find("<|im_start|>") : kByteStart;
    const std::optional<int32_t> end = chatml_ ? find("<|im_end|>") : end_of_text();
    if (tokenizer && !end)
      throw UserError("--template plain: the tokenizer has no token that ends a text");
    end_ = tokenizer ? *end : kByteEnd;
  }

  bool chatml() const { return chatml_; }
  int32_t end() const { return end_; }  ///< the token that ends a message

  /// Adds a message.
  void add(ChatTokens& chat, const std::string& role, const std::string& content, Learn learn) {
    const bool all = learn == Learn::All, answer = all || role == "assistant";
    open(chat, role, all);
    chat.add(encode(content), answer);
    close(chat, answer && learn != Learn::Text, all);
  }
  /// Adds what comes before the text of a message. An answer is written behind it.
  void open(ChatTokens& chat, const std::string& role, bool learn = false) {
    if (chatml_) chat.add(std::span(&start_, 1), learn);
    chat.add(encode(chatml_ ? role + "\n" : role + ":\n"), learn);
  }
  /// Adds the token that ends a message, and what comes behind it.
  void close(ChatTokens& chat, bool learn_end = false, bool learn_rest = false) {
    chat.add(std::span(&end_, 1), learn_end);
    if (chatml_) chat.add(encode("\n"), learn_rest);
  }

  /// The template in Jinja, the language of transformers' templates.
  std::string jinja() const {
    const std::string content = "{% generation %}{{ message['content'] + END }}{% endgeneration %}";
    std::string text =
        "{% for message in messages %}{{ START + message['role'] + HEAD }}"
        "{% if message['role'] == 'assistant' %}" +
        content +
        "{% else %}{{ message['content'] + END }}{% endif %}{{ TAIL }}{% endfor %}"
        "{% if add_generation_prompt %}{{ START + 'assistant' + HEAD }}{% endif %}";
    const auto put = [&](std::string_view name, const std::string& value) {
      for (size_t at = 0; (at = text.find(name, at)) != text.npos; at += value.size())
        text.replace(at, name.size(), value);
    };
    put("START", chatml_ ? "'<|im_start|>'" : "''");
    put("HEAD", chatml_ ? "'\\n'" : "':\\n'");
    put("END", "'" + tokenizer_->tokens[static_cast<size_t>(end_)] + "'");
    put("TAIL", chatml_ ? "'\\n'" : "''");
    return text;
  }

 private:
  std::optional<int32_t> find(const char* text) const {
    if (!tokenizer_) return std::nullopt;
    const auto at = tokenizer_->added.find(text);
    if (at == tokenizer_->added.end() || !at->second.special) return std::nullopt;
    return static_cast<int32_t>(at->second.id);
  }
  std::optional<int32_t> end_of_text() const {
    if (!tokenizer_ || !tokenizer_->end_of_text) return std::nullopt;
    return static_cast<int32_t>(*tokenizer_->end_of_text);
  }
  std::vector<int32_t> encode(const std::string& text) {
    std::vector<int32_t> tokens;
    if (!encoder_) {
      for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
      for (const int32_t byte : tokens)
        if (byte == kByteStart || byte == kByteEnd)
          throw UserError("a text with the byte {:X}; legal is UTF-8, which has none", byte);
      return tokens;
    }
    std::vector<uint32_t> ids;
    encoder_->encode(text, ids);
    tokens.assign(ids.begin(), ids.end());
    return tokens;
  }

  const Tokenizer* tokenizer_;
  std::unique_ptr<Encoder> encoder_;
  bool chatml_ = false;
  int32_t start_ = 0, end_ = 0;
};

/// What became of the chats of a file.
struct ChatCounts {
  int64_t chats = 0;
  int64_t cut = 0;         ///< longer than a row: their end is left out
  int64_t targetless = 0;  ///< left out: nothing in them, or in what is left, is learned
  int64_t tokens = 0, learned = 0;
};

/// The messages of a line. @throws UserError; the caller names the line
inline ChatTokens read_chat(std::string_view line, Speller& speller, Learn learn) {
  constexpr std::array kRoles = {"system", "user", "assistant"};
  const nlohmann::json chat = parse_json(line);
  const auto messages = chat.is_object() ? chat.find("messages") : chat.end();
  if (!chat.is_object() || messages == chat.end() || !messages->is_array() || messages->empty())
    throw UserError("legal is {{\"messages\": [{{\"role\": ..., \"content\": ...}}, ...]}}");
  ChatTokens tokens;
  for (const nlohmann::json& message : *messages) {
    const bool texts = message.is_object() && message.contains("role") &&
                       message.contains("content") && message["role"].is_string() &&
                       message["content"].is_string();
    if (!texts) throw UserError("a message has a role and a content, and both are texts");
    const std::string role = message["role"];
    if (std::ranges::find(kRoles, role) == kRoles.end())
      throw UserError("role {}; legal are {}", role, fmt::join(kRoles, ", "));
    speller.add(tokens, role, message["content"], learn);
  }
  return tokens;
}

/// The chats of a file: each is a document of at most T + 1 tokens.
/// @throws UserError naming the file, and the line
inline std::shared_ptr<const EncodedText> read_chats(const std::string& path, Speller& speller,
                                                     Learn learn, int64_t T, ChatCounts& counts) {
  constexpr int64_t kLongest = 1 << 26;
  EncodedText text{.width = 4, .bytes = {}, .ends = {}};
  LineFiles files({path}, "--data", kLongest);
  for (LinePart part; files.next(part);)
    for (size_t i = 0; i < part.lines.size(); ++i) {
      if (part.lines[i].bytes == 0) continue;
      ChatTokens chat;
      try {
        chat = read_chat(part.line(i), speller, learn);
      } catch (const UserError& e) {
        throw UserError("{}: {}", files.name_of(part, i), e.what());
      }
      ++counts.chats;
      const size_t whole = chat.tokens.size();
      chat.cut(static_cast<size_t>(T + 1));
      counts.cut += chat.tokens.size() < whole;
      if (!chat.has_target()) {
        ++counts.targetless;
        continue;
      }
      const size_t at = text.bytes.size();
      text.bytes.resize(at + 4 * chat.tokens.size());
      std::memcpy(text.bytes.data() + at, chat.tokens.data(), 4 * chat.tokens.size());
      text.learned.insert(text.learned.end(), chat.learned.begin(), chat.learned.end());
      text.ends.push_back(std::ssize(text.learned));
      counts.tokens += std::ssize(chat.tokens);
      counts.learned += std::count(chat.learned.begin() + 1, chat.learned.end(), true);
    }
  return std::make_shared<const EncodedText>(std::move(text));
}

}  // namespace ladder
