#include "common/tokens/token_file.h"

#include <cstring>
#include <filesystem>

#include "common/error.h"

namespace ladder {
namespace {

constexpr int64_t kMost16 = 1 << 16;

int64_t width_of(TokenKind kind) { return kind == TokenKind::Uint16 ? 2 : 4; }

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

std::string index_path(const std::string& path) {
  if (!path.ends_with(".bin"))
    throw UserError("--out {}: Megatron's files are X.bin and X.idx; give a name that ends in .bin",
                    path);
  return std::filesystem::path(path).replace_extension(".idx").string();
}

TokenKind token_kind(TokenKind given, const Tokenizer& tokenizer) {
  const bool fits = tokenizer.vocab() <= kMost16;
  if (given == TokenKind::Auto) return fits ? TokenKind::Uint16 : TokenKind::Uint32;
  if (given == TokenKind::Bytes || (given == TokenKind::Uint16 && !fits))
    throw UserError("--tokens {}: the tokenizer has {} tokens; legal is {}", to_string(given),
                    tokenizer.vocab(), fits ? "uint16 or uint32" : "uint32");
  return given;
}

TokenWriter::TokenWriter(const std::string& path, TokenFile file, TokenKind kind,
                         const std::string& what)
    : width_(width_of(kind)), file_(path, what) {
  if (file == TokenFile::Megatron) index_.emplace(index_path(path), what);
}

void TokenWriter::write(std::span<const uint32_t> ids) {
  buffer_.resize(ids.size() * static_cast<size_t>(width_));
  for (size_t i = 0; i < ids.size(); ++i)  // for a little-endian machine
    std::memcpy(buffer_.data() + i * static_cast<size_t>(width_), &ids[i],
                static_cast<size_t>(width_));
  file_.write(buffer_);
  tokens_ += std::ssize(ids);
}

void TokenWriter::end_document() { ends_.push_back(tokens_); }

std::string TokenWriter::index() const {
  std::string bytes("MMIDIDX\0\0", 9);
  const auto documents = static_cast<uint64_t>(ends_.size());
  append(bytes, uint64_t{1});                                // version
  append(bytes, static_cast<uint8_t>(width_ == 2 ? 8 : 4));  // uint16 or int32
  append(bytes, documents);                                  // sequences
  append(bytes, documents + 1);
  for (size_t i = 0; i < ends_.size(); ++i) {
    const int64_t length = ends_[i] - (i > 0 ? ends_[i - 1] : 0);
    if (length > INT32_MAX)
      throw UserError("document {} has {} tokens; Megatron's index takes at most {}", i, length,
                      INT32_MAX);
    append(bytes, static_cast<int32_t>(length));
  }
  for (size_t i = 0; i < ends_.size(); ++i) append(bytes, (i > 0 ? ends_[i - 1] : 0) * width_);
  for (uint64_t i = 0; i <= documents; ++i) append(bytes, i);
  return bytes;
}

void TokenWriter::commit() {
  // Both files are on the disk before one of them gets its name, so a full disk leaves the old
  // pair. A death between the two renames does not.
  if (index_) {
    index_->write(index());
    index_->sync();
  }
  file_.sync();
  if (index_) index_->commit();
  file_.commit();
}

}  // namespace ladder
