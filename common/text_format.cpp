#include "common/text_format.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "common/error.h"

namespace ladder {
namespace {

// Token files of llm.c begin with 256 numbers of 32 bits: magic, version, number of tokens, zeros.
constexpr int64_t kHeader = 1024;
struct LlmC {
  int64_t magic, version, width;
};
constexpr std::array kLlmC = {LlmC{20240520, 1, 2}, LlmC{20240801, 7, 4}};

// Looks at no more than 64 pages of a file.
constexpr int64_t kPages = 64, kPage = 4096;

/// Calls f(bytes, place) for pages spread evenly after the header, including the first and the
/// last. A short file is looked at whole.
template <class F>
void for_pages(const InputFile& file, int64_t header, F&& f) {
  const int64_t size = file.size() - header, pages = (size + kPage - 1) / kPage;
  const int64_t looked_at = std::min(pages, kPages);
  std::vector<std::byte> page;
  for (int64_t i = 0; i < looked_at; ++i) {
    const int64_t at = (pages - 1) * i / std::max<int64_t>(1, looked_at - 1) * kPage;
    page.resize(static_cast<size_t>(std::min(kPage, size - at)));
    file.read(header + at, page);
    f(page, at);
  }
}

struct Zeros {
  int64_t count = 0, seen = 0;
};

/// How many bytes of those pages are 0, and how many were seen.
Zeros count_zeros(const InputFile& file) {
  Zeros zeros;
  for_pages(file, 0, [&](const std::vector<std::byte>& page, int64_t) {
    zeros.count += std::ranges::count(page, std::byte{});
    zeros.seen += std::ssize(page);
  });
  return zeros;
}

// No byte of a text is 0. Frequent tokens have small numbers, so their upper bytes are 0.
void refuse_tokens_as_text(const InputFile& file) {
  if (count_zeros(file).count > 0)
    throw UserError(
        "{}: has bytes that are 0, so it is no text; --tokens uint16 or uint32, with --vocab N, "
        "reads it as tokens, and --tokens bytes as bytes",
        file.name());
}

void refuse_text_as_tokens(const InputFile& file, TokenKind tokens) {
  const Zeros zeros = count_zeros(file);
  if (zeros.seen >= 1000 && zeros.count == 0)
    throw UserError("{}: looks like text and not like --tokens {}: none of its bytes is 0",
                    file.name(), to_string(tokens));
}

// A model would learn to write JSON.
void refuse_documents_as_text(const InputFile& file) {
  if (file.path().ends_with(".jsonl"))
    throw UserError(
        "{}: its lines are documents, which --tokenizer reads; --tokens bytes takes the file as it "
        "is",
        file.name());
}

void refuse_foreign_tokens(const InputFile& file, const TextFormat& format, int64_t vocab) {
  for_pages(file, format.header, [&](const std::vector<std::byte>& page, int64_t at) {
    for (int64_t i = 0; i < std::ssize(page); i += format.width)
      require_token(file, (at + i) / format.width, token_at(page.data() + i, format.width), vocab);
  });
}

/// The format that a header of llm.c gives, if there is one.
std::optional<TextFormat> llm_c_format(const InputFile& file) {
  if (file.size() < kHeader) return {};
  std::array<std::byte, 12> words{};
  file.read(0, words);
  const auto word = [&](int64_t i) { return token_at(words.data() + 4 * i, 4); };
  const auto* known = std::ranges::find(kLlmC, word(0), &LlmC::magic);
  if (known == kLlmC.end()) return {};
  if (word(1) != known->version)
    throw UserError("{}: a token file of llm.c of version {}; only version {} can be read",
                    file.name(), word(1), known->version);
  const TextFormat format{.width = known->width, .header = kHeader};
  if (file.size() != kHeader + word(2) * known->width)
    throw UserError("{}: a token file of llm.c with {} tokens takes {} bytes, and it has {}",
                    file.name(), word(2), kHeader + word(2) * known->width, file.size());
  return format;
}

TextFormat raw_format(const InputFile& file, TokenKind tokens) {
  const TextFormat format{.width = tokens == TokenKind::Uint16 ? 2 : 4};
  if (file.size() % format.width != 0)
    throw UserError("{}: {} bytes are no whole number of --tokens {}", file.name(), file.size(),
                    to_string(tokens));
  refuse_text_as_tokens(file, tokens);
  return format;
}

}  // namespace

int64_t token_at(const std::byte* raw, int64_t width) {
  uint32_t token = 0;  // little-endian, as all machines here are
  std::memcpy(&token, raw, static_cast<size_t>(width));
  return token;
}

void require_token(const InputFile& file, int64_t place, int64_t token, int64_t vocab) {
  if (token >= vocab)
    throw UserError(
        "{}: token {} is {}, and the vocabulary has {}; --vocab or --tokenizer sets another",
        file.name(), place, token, vocab);
}

TextFormat find_format(const InputFile& file, TokenKind tokens, int64_t vocab, bool encodes) {
  if (tokens == TokenKind::Bytes) return {};
  const std::optional<TextFormat> header = llm_c_format(file);
  if (tokens == TokenKind::Auto && !header) {
    if (!encodes) refuse_documents_as_text(file);
    refuse_tokens_as_text(file);
    return {};
  }
  const TextFormat format = header ? *header : raw_format(file, tokens);
  if (tokens != TokenKind::Auto && (format.width == 2) != (tokens == TokenKind::Uint16))
    throw UserError("{}: its header of llm.c says uint{}, not --tokens {}", file.name(),
                    8 * format.width, to_string(tokens));
  refuse_foreign_tokens(file, format, vocab);
  return format;
}

}  // namespace ladder
