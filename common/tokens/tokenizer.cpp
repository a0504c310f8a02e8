#include "common/tokens/tokenizer.h"

#include <algorithm>
#include <array>
#include <span>

#include <fmt/format.h>

#include "common/checksum.h"
#include "common/error.h"
#include "common/tokens/unicode.h"

namespace ladder {
namespace {

bool prints(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/// The character of each byte.
std::array<char32_t, 256> make_codes() {
  std::array<char32_t, 256> codes{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte)
    codes[static_cast<size_t>(byte)] = prints(byte) ? static_cast<char32_t>(byte) : next++;
  return codes;
}
const std::array<char32_t, 256>& codes() {
  static const std::array<char32_t, 256> all = make_codes();
  return all;
}

}  // namespace

void Tokenizer::end_texts_with(int64_t id) {
  if (id < 0 || id >= vocab() || tokens[static_cast<size_t>(id)].empty())
    throw UserError("token {} ends a text, and there is none of this id", id);
  const auto end = static_cast<uint32_t>(id);
  const bool is_made = tokens[end].size() == 1 || std::ranges::count(merges, end, &Merge::result);
  if (is_made && !added_token(end))
    throw UserError("token {} ends a text, and is {}, which a text may have", id,
                    to_alphabet(tokens[end]));
  AddedToken& token = added[tokens[end]];
  token.id = end;
  token.special = true;
  end_of_text = end;
}

std::string to_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const char32_t code = codes()[static_cast<unsigned char>(byte)];
    if (code >= 0x80) text += static_cast<char>(0xC0 | code >> 6);
    text += static_cast<char>(code >= 0x80 ? 0x80 | (code & 0x3F) : code);
  }
  return text;
}

std::string alphabet() {
  std::string bytes;
  for (char32_t code = 0; code < 0x200; ++code)
    for (size_t byte = 0; byte < 256; ++byte)
      if (codes()[byte] == code) bytes += static_cast<char>(byte);
  return bytes;
}

std::optional<std::string> from_alphabet(std::string_view text) {
  static const std::map<char32_t, char> bytes = [] {
    std::map<char32_t, char> of;
    for (size_t byte = 0; byte < 256; ++byte) of[codes()[byte]] = static_cast<char>(byte);
    return of;
  }();
  std::string found;
  for (size_t at = 0; at < text.size();) {
    const Char c = char_at(text, at);
    const auto byte = bytes.find(c.code);
    if (byte == bytes.end()) return {};
    found += byte->second;
    at += c.bytes;
  }
  return found;
}

std::vector<int32_t> token_bytes(const Tokenizer& tokenizer) {
  std::vector<int32_t> bytes;
  for (const std::string& token : tokenizer.tokens)
    bytes.push_back(static_cast<int32_t>(token.size()));
  for (const auto& [text, token] : tokenizer.added)
    if (token.special) bytes[token.id] = 0;
  return bytes;
}

std::string fingerprint(const Tokenizer& tokenizer) {
  Checksum sum;
  const auto add = [&](std::string_view text) { sum.update(std::as_bytes(std::span(text))); };
  add(fmt::format("{} {}\n", to_string(tokenizer.split), tokenizer.whole_words));
  for (const std::string& token : tokenizer.tokens)
    add(fmt::format("{} {}\n", token.size(), token));
  for (const Merge& m : tokenizer.merges) add(fmt::format("{} {} {}\n", m.left, m.right, m.rank));
  for (const auto& [text, token] : tokenizer.added)
    add(fmt::format("{} {} {} {}\n", token.id, token.special, token.normalized, text));
  if (tokenizer.end_of_text) add(fmt::format("{}\n", *tokenizer.end_of_text));
  return sum.hex();
}

std::vector<uint32_t> byte_ids(const Tokenizer& tokenizer) {
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> ids(256, kNone);
  for (uint32_t id = 0; id < tokenizer.tokens.size(); ++id)
    if (tokenizer.tokens[id].size() == 1 && !tokenizer.added_token(id))
      ids[static_cast<unsigned char>(tokenizer.tokens[id][0])] = id;
  for (size_t byte = 0; byte < ids.size(); ++byte)
    if (ids[byte] == kNone)
      throw UserError("no token is the byte {}; a byte-level tokenizer has all 256", byte);
  return ids;
}

}  // namespace ladder
