#include "common/data/text_format.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

// The first bytes of other kinds of files, which are neither text nor a plain list of numbers.
struct Container {
  std::string_view begin, name;
};
constexpr std::array kContainers = {
    Container{"\x93NUMPY", "an array of NumPy"},  Container{"PK\x03\x04", "a zip archive"},
    Container{"\x1f\x8b\x08", "a gzip archive"},  Container{"\x28\xb5\x2f\xfd", "a zstd archive"},
    Container{"\xfd\x37zXZ", "an xz archive"},    Container{"PAR1", "a Parquet file"},
    Container{"MMIDIDX", "an index of Megatron"}, Container{"ARROW1", "an Arrow file"}};

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

/// How many bytes of those pages are 0, by their place in a number of 32 bits; and how many were
/// seen.
struct Zeros {
  std::array<int64_t, 4> at{};
  int64_t seen = 0;

  int64_t even() const { return at[0] + at[2]; }
  int64_t odd() const { return at[1] + at[3]; }
};

Zeros count_zeros(const InputFile& file) {
  Zeros zeros;
  for_pages(file, 0, [&](const std::vector<std::byte>& page, int64_t) {
    for (size_t i = 0; i < page.size(); ++i) zeros.at[i % 4] += page[i] == std::byte{};
    zeros.seen += std::ssize(page);
  });
  return zeros;
}

// Frequent tokens have small numbers, so their upper bytes are 0. No byte of a text is 0.
void refuse_tokens_as_text(const InputFile& file) {
  const Zeros zeros = count_zeros(file);
  const int64_t each = zeros.seen / 4;  // of the four places
  const bool wide = zeros.at[3] > each * 99 / 100 && zeros.at[2] > each / 4;
  const bool narrow = zeros.odd() > each / 50 && zeros.odd() > 4 * zeros.even();
  if (wide || narrow)
    throw UserError(
        "{}: looks like numbers of {} bits and not like text; --tokens uint{} --vocab N reads them "
        "as tokens, and --tokens bytes as bytes",
        file.name(), wide ? 32 : 16, wide ? 32 : 16);
}

void refuse_text_as_tokens(const InputFile& file, TokenKind tokens) {
  const Zeros zeros = count_zeros(file);
  if (zeros.seen >= 1000 && zeros.even() + zeros.odd() == 0)
    throw UserError("{}: looks like text and not like --tokens {}: none of its bytes is 0",
                    file.name(), to_string(tokens));
}

/// Whether numbers of `width` bytes are the halves of wider numbers. Then almost all numbers at odd
/// places are small, as the upper halves of tokens are, and those at even places are not.
bool are_halves(const InputFile& file, int64_t width) {
  constexpr int64_t kLittle = 16, kLeast = 64;
  std::array<int64_t, 2> seen{}, little{};
  for_pages(file, 0, [&](const std::vector<std::byte>& page, int64_t) {
    for (int64_t i = 0; i < std::ssize(page) / width; ++i) {
      ++seen[i % 2];
      little[i % 2] += token_at(page.data() + i * width, width) < kLittle;
    }
  });
  return seen[1] >= kLeast && little[1] > seen[1] * 99 / 100 && little[0] < seen[0] * 9 / 10;
}

void refuse_halves(const InputFile& file, TokenKind tokens, int64_t width) {
  if (file.size() % (2 * width) != 0 || !are_halves(file, width)) return;
  throw UserError(
      "{}: looks like numbers of {} bits and not like --tokens {}: every other one is "
      "next to 0; legal are {}",
      file.name(), 16 * width, to_string(tokens),
      width == 2 ? "--tokens uint32, and a file of uint16" : "files of uint16 and uint32");
}

void refuse_foreign_tokens(const InputFile& file, const TextFormat& format, int64_t vocab) {
  for_pages(file, format.header, [&](const std::vector<std::byte>& page, int64_t at) {
    for (int64_t i = 0; i < std::ssize(page); i += format.width)
      require_token(file, (at + i) / format.width, token_at(page.data() + i, format.width), vocab);
  });
}

void refuse_containers(const InputFile& file) {
  for (const auto& [begin, name] : kContainers) {
    std::string there(begin.size(), '\0');
    if (file.size() < std::ssize(begin)) continue;
    file.read(0, std::as_writable_bytes(std::span(there)));
    if (there == begin)
      throw UserError("{}: {}; legal are text and plain numbers, as NumPy's tofile() writes them",
                      file.name(), name);
  }
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
  refuse_halves(file, tokens, format.width);
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

TextFormat find_format(const InputFile& file, TokenKind tokens, int64_t vocab) {
  if (tokens == TokenKind::Bytes) return {};
  refuse_containers(file);
  const std::optional<TextFormat> header = llm_c_format(file);
  if (tokens == TokenKind::Auto && !header) {
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
