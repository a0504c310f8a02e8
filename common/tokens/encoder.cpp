#include "common/tokens/encoder.h"

#include <algorithm>
#include <cstring>

#include "common/error.h"
#include "common/tokens/merge.h"

namespace ladder {
namespace {

constexpr size_t kCacheEntries = 1 << 16;  // 4 MiB of them
constexpr size_t kShort = 48;              // bytes of a piece that merge_short() takes

}  // namespace

MergeTable::MergeTable(const Tokenizer& tokenizer)
    : pairs_(tokenizer.merges.size()), bytes_(byte_ids(tokenizer)) {
  for (const Merge& m : tokenizer.merges) pairs_[pair_key(m.left, m.right)] = {m.rank, m.result};
  if (!tokenizer.whole_words) return;
  for (uint32_t id = 0; id < tokenizer.tokens.size(); ++id)
    if (!tokenizer.tokens[id].empty() && !tokenizer.is_special(id))
      whole_.emplace(tokenizer.tokens[id], id);
}

Encoder::Encoder(const Tokenizer& tokenizer)
    : split_(tokenizer.split),
      merges_(std::make_shared<const MergeTable>(tokenizer)),
      cache_(kCacheEntries) {}

Encoder::Encoder(const Encoder& other)
    : split_(other.split_), merges_(other.merges_), cache_(kCacheEntries) {}

void Encoder::merge(std::string_view piece) {
  ids_.clear();
  if (const uint32_t* id = merges_->whole(piece)) {
    ids_.push_back(*id);
    return;
  }
  for (const char c : piece) ids_.push_back(merges_->byte(c));
  piece.size() <= kShort ? merge_short(*merges_, ids_) : merge_long(*merges_, ids_);
}

Encoder::Words Encoder::words_of(std::string_view text, size_t begin, size_t bytes) {
  Words words{};
  if (begin + sizeof words > text.size()) {
    std::memcpy(words.data(), text.data() + begin, bytes);
    return words;
  }
  std::memcpy(words.data(), text.data() + begin, sizeof words);
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t kept = std::min<size_t>(8, bytes - std::min(bytes, 8 * i));
    words[i] &= kept == 0 ? 0 : UINT64_MAX >> (64 - 8 * kept);  // little-endian, as machines here are
  }
  return words;
}

const Encoder::Entry& Encoder::entry_of(std::string_view text, size_t begin, size_t bytes) {
  const Words words = words_of(text, begin, bytes);
  uint64_t hash = bytes;
  for (const uint64_t word : words) hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
  Entry& entry = cache_[(hash ^ hash >> 32) >> 16 & (kCacheEntries - 1)];
  const auto& [a, b, c] = entry.words;
  if (((a ^ words[0]) | (b ^ words[1]) | (c ^ words[2]) | (entry.bytes ^ bytes)) == 0) {
    ++stats_.hits;
    return entry;
  }
  merge(text.substr(begin, bytes));
  if (ids_.size() > entry.ids.size()) return none_;
  entry.words = words;
  entry.bytes = static_cast<uint32_t>(bytes);
  entry.count = static_cast<uint32_t>(ids_.size());
  std::ranges::copy(ids_, entry.ids.begin());
  return entry;
}

void Encoder::encode(std::string_view text, std::vector<uint32_t>& out) {
  size_t tokens = out.size();
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = piece_end(split_, text, begin);
    ++stats_.pieces;
    const bool is_kept = end - begin <= sizeof(Words);
    if (!is_kept) merge(text.substr(begin, end - begin));
    const Entry& entry = is_kept ? entry_of(text, begin, end - begin) : none_;
    const size_t count = entry.count > 0 ? entry.count : ids_.size();
    // All places of an entry are copied, whose number the compiler knows.
    if (tokens + std::max(count, entry.ids.size()) > out.size())
      out.resize(2 * out.size() + count + entry.ids.size());
    if (entry.count > 0)
      std::ranges::copy(entry.ids, out.data() + tokens);
    else
      std::ranges::copy(ids_, out.data() + tokens);
    tokens += count;
  }
  out.resize(tokens);
}

std::string decode(const Tokenizer& tokenizer, std::span<const uint32_t> ids, bool keep_special) {
  std::string text;
  for (const uint32_t id : ids) {
    if (id >= tokenizer.tokens.size() || tokenizer.tokens[id].empty())
      throw UserError("token {} is none of the tokenizer, which has {}", id, tokenizer.vocab());
    if (keep_special || !tokenizer.is_special(id)) text += tokenizer.tokens[id];
  }
  return text;
}

}  // namespace ladder
