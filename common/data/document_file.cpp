#include "common/data/document_file.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "common/error.h"

namespace ladder {
namespace {

// Megatron's index: 9 bytes of magic, the version, the type of tokens, the counts of sequences and
// of documents (one more); then for each sequence its length in 32 bits and its first byte in 64.
constexpr std::array kIndexMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr int64_t kIndexHeader = 34, kIndexPart = 1 << 16;

int64_t number(std::span<const std::byte> bytes, int64_t at) {
  return token_at(bytes.data() + at, 4) | token_at(bytes.data() + at + 4, 4) << 32;
}

/// Megatron's number for the type of tokens of that width.
int64_t type_of(int64_t width) { return width == 1 ? 1 : width == 2 ? 8 : 4; }

}  // namespace

std::string DocumentFile::index_of(const std::string& path) {
  return std::filesystem::path(path).replace_extension(".idx").string();
}

DocumentFile::DocumentFile(const TextOptions& options, std::optional<int64_t> end_of_text)
    : options_(options), file_(options.open()), size_(options.format.count(file_->size())) {
  if (end_of_text) {
    find_ends(*end_of_text);
  } else if (options.encoded) {
    ends_ = options.encoded->ends;
    count_ = std::ssize(ends_);
  } else {
    open_index();
  }
}

void DocumentFile::find_ends(int64_t end_of_text) {
  if (end_of_text < 0 || end_of_text >= options_.vocab)
    throw UserError("--end-of-text must be from 0 to {}, not {}", options_.vocab - 1, end_of_text);
  std::vector<int32_t> tokens;
  for (int64_t at = 0; at < size_; at += std::ssize(tokens)) {
    tokens.resize(static_cast<size_t>(std::min(kIndexPart, size_ - at)));
    read(at, tokens);
    for (int64_t i = 0; i < std::ssize(tokens); ++i)
      if (tokens[static_cast<size_t>(i)] == end_of_text) ends_.push_back(at + i + 1);
  }
  if (ends_.empty())
    throw UserError("{}: no document ends with --end-of-text {}; legal is the token that ends them",
                    name(), end_of_text);
  // Somebody may have cut the last document off.
  if (ends_.back() < size_) ends_.push_back(size_);
  count_ = std::ssize(ends_);
}

void DocumentFile::open_index() {
  const std::string path = index_of(options_.path);
  std::error_code ignored;
  if (path == options_.path || !std::filesystem::exists(path, ignored))
    throw UserError(
        "{}: --documents needs {} beside it, as ch24_tokenizer --format megatron writes it, or "
        "--end-of-text",
        name(), path);
  index_.emplace(path);
  check_index();
}

void DocumentFile::check_index() {
  const auto disagrees = [&](const std::string& why) {
    throw UserError("{}: its index {} disagrees: {}", name(), index_->path(), why);
  };
  std::array<std::byte, kIndexHeader> header{};
  if (index_->size() < kIndexHeader) disagrees("it is too short");
  index_->read(0, header);
  const auto same = [](char a, std::byte b) { return static_cast<std::byte>(a) == b; };
  if (!std::ranges::equal(kIndexMagic, std::span(header).first(kIndexMagic.size()), same))
    disagrees("it is no index of Megatron");
  if (number(header, 9) != 1) disagrees(fmt::format("version {}, not 1", number(header, 9)));
  const int64_t type = token_at(header.data() + 17, 1), wanted = type_of(options_.format.width);
  if (type != wanted)
    disagrees(
        fmt::format("tokens of type {}, not {}; --tokens says what the file has", type, wanted));
  count_ = number(header, 18);
  if (count_ < 0 || count_ > index_->size() || index_->size() != kIndexHeader + 20 * count_ + 8)
    disagrees(fmt::format("{} bytes for {} documents", index_->size(), count_));
  if (number(header, 26) != count_ + 1) disagrees("some of its documents are several sequences");

  int64_t end = 0;
  for (int64_t first = 0; first < count_; first += kIndexPart)
    for (const Range& one : indexed(first, std::min(kIndexPart, count_ - first))) {
      if (one.begin != end || one.end < one.begin)
        disagrees(fmt::format("a document from token {} to {} follows one that ends at {}",
                              one.begin, one.end, end));
      end = one.end;
    }
  // The third array: the first sequence of each document, and the end.
  std::vector<std::byte> firsts;
  for (int64_t first = 0; first <= count_; first += kIndexPart) {
    firsts.resize(static_cast<size_t>(8 * std::min(kIndexPart, count_ + 1 - first)));
    index_->read(kIndexHeader + 12 * count_ + 8 * first, firsts);
    for (int64_t i = 0; 8 * i < std::ssize(firsts); ++i)
      if (number(firsts, 8 * i) != first + i)
        disagrees(fmt::format("document {} begins with sequence {}, not {}", first + i,
                              number(firsts, 8 * i), first + i));
  }
  if (end != size_ || options_.format.header != 0)
    disagrees(fmt::format("it has {} tokens, and the file {}", end, size_));
}

std::vector<Range> DocumentFile::indexed(int64_t first, int64_t count) const {
  std::vector<std::byte> lengths(static_cast<size_t>(4 * count)), begins(2 * lengths.size());
  index_->read(kIndexHeader + 4 * first, lengths);
  index_->read(kIndexHeader + 4 * count_ + 8 * first, begins);
  std::vector<Range> documents;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = number(begins, 8 * i) / options_.format.width;
    const auto length = static_cast<int32_t>(token_at(lengths.data() + 4 * i, 4));
    documents.push_back({begin, begin + length});
  }
  return documents;
}

Range DocumentFile::document(int64_t i) const {
  if (index_) return indexed(i, 1).front();
  const auto at = static_cast<size_t>(i);
  return {at == 0 ? 0 : ends_[at - 1], ends_[at]};
}

void DocumentFile::read(int64_t begin, std::span<int32_t> tokens) const {
  read_tokens(*file_, options_.format, options_.vocab, begin, tokens);
  if (!options_.encoded || options_.encoded->learned.empty()) return;
  for (int32_t& token : tokens)
    if (!options_.encoded->learned[static_cast<size_t>(begin + (&token - tokens.data()))])
      token = ~token;
}

TargetCount DocumentFile::count_targets(int64_t begin, int64_t targets) const {
  const auto read_all = [&] {
    std::vector<int32_t> tokens(static_cast<size_t>(targets + 1));
    read(begin, tokens);
    return tokens;
  };
  if (!options_.encoded || options_.encoded->learned.empty())
    return options_.count(targets, read_all);
  std::vector<int32_t> learned = read_all();
  learned.erase(std::remove_if(learned.begin() + 1, learned.end(), [](int32_t t) { return t < 0; }),
                learned.end());
  return options_.count(std::ssize(learned) - 1, [&] { return learned; });
}

}  // namespace ladder
