#include "common/tokens/split.h"

#include <stdexcept>  // for the stub of lab 24

#include "common/tokens/unicode.h"

namespace ladder {
namespace {

bool is_newline(const Char& c) { return c.code == U'\n' || c.code == U'\r'; }

/// The end of a run of characters of one class that begins at `at` and has at most `most` of them.
size_t run_end(std::string_view text, size_t at, CharClass kind, size_t most = SIZE_MAX) {
  for (Char c = char_at(text, at); most > 0 && c.kind == kind; c = char_at(text, at), --most)
    at += c.bytes;
  return at;
}

/// The end of s, t, re, ve, m, ll or d after an apostrophe; `begin` if none of them is there.
/// @param any_case also finds capitals, and the long s, which is an s if case is ignored
size_t contraction_end(std::string_view text, size_t begin, bool any_case) {
  const auto letter = [&](size_t i) {
    const unsigned char c = i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
    return static_cast<char>(any_case && c >= 'A' && c <= 'Z' ? c + 32 : c);
  };
  const char first = letter(begin + 1), second = letter(begin + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
  if (any_case && text.substr(begin + 1, 2) == "\u017F") return begin + 3;
  const bool two =
      (second == 'e' && (first == 'r' || first == 'v')) || (second == 'l' && first == 'l');
  return two ? begin + 3 : begin;
}

/// \s+(?!\S)|\s+ : white space without its last character, which belongs to the next word.
size_t blanks_end(std::string_view text, size_t begin) {
  size_t last = begin, at = begin;
  for (Char c = char_at(text, at); c.kind == CharClass::Space; c = char_at(text, at)) {
    last = at;
    at += c.bytes;
  }
  return at == text.size() || last == begin ? at : last;
}

size_t gpt2_end(std::string_view text, size_t begin) {
  const Char first = char_at(text, begin);
  if (first.code == U'\'')
    if (const size_t end = contraction_end(text, begin, false); end > begin) return end;
  const size_t word = begin + (first.code == U' ');
  const Char c = char_at(text, word);
  if (c.kind == CharClass::Space || c.kind == CharClass::End) return blanks_end(text, begin);
  return run_end(text, word, c.kind);
}

/// If white space has newlines, its end is after the last newline. 0: it has none.
size_t last_newline_end(std::string_view text, size_t begin, size_t end) {
  for (; end > begin; --end)
    if (text[end - 1] == '\n' || text[end - 1] == '\r') return end;
  return 0;
}

size_t llama3_end(std::string_view text, size_t begin, bool keep_end_whole) {
  const Char first = char_at(text, begin);
  if (first.code == U'\'')
    if (const size_t end = contraction_end(text, begin, true); end > begin) return end;
  if (first.kind == CharClass::Letter) return run_end(text, begin, CharClass::Letter);
  if (first.kind == CharClass::Number) return run_end(text, begin, CharClass::Number, 3);
  const Char second = char_at(text, begin + first.bytes);
  if (second.kind == CharClass::Letter && !is_newline(first))
    return run_end(text, begin + first.bytes, CharClass::Letter);
  if (first.kind == CharClass::Other || (first.code == U' ' && second.kind == CharClass::Other)) {
    size_t end = run_end(text, begin + first.bytes, CharClass::Other);
    while (is_newline(char_at(text, end))) ++end;
    return end;
  }
  const size_t end = run_end(text, begin, CharClass::Space);
  if (keep_end_whole && end == text.size()) return end;
  if (const size_t newline = last_newline_end(text, begin, end)) return newline;
  return blanks_end(text, begin);
}

}  // namespace

size_t piece_end(Split split, std::string_view text, size_t begin) {
  if (split == Split::Gpt2) return gpt2_end(text, begin);
  return llama3_end(text, begin, split == Split::Cl100k);
}

size_t last_cut(std::string_view text) {
  // In all three patterns a piece ends after a letter or number if another class follows.
  for (size_t at = text.size(); at-- > 1;) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte >= 0x80 && byte < 0xC0) continue;
    size_t before = at - 1;
    while (before > 0 && at - before < 4 &&
           (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80)
      --before;
    const Char left = char_at(text, before), right = char_at(text, at);
    const bool is_word = left.kind == CharClass::Letter || left.kind == CharClass::Number;
    const bool is_valid = left.code != kInvalid && right.code != kInvalid;
    if (is_word && is_valid && before + left.bytes == at && left.kind != right.kind) return at;
  }
  return 0;
}

}  // namespace ladder
