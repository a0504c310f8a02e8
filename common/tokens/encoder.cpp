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
    if (!tokenizer.tokens[id].empty() && !tokenizer.added_token(id))
      whole_.emplace(tokenizer.tokens[id], id);
}

void AddedTokens::add(std::string_view text, const AddedToken& token) {
  uint32_t node = 0;
  for (const char c : text) {
    uint32_t& next = next_[pair_key(node, static_cast<unsigned char>(c))];
    if (next == 0) {
      next = static_cast<uint32_t>(ends_.size());
      ends_.push_back(nullptr);
    }
    node = next;
  }
  ends_[node] = &token;
}

AddedTokens::Found AddedTokens::find(std::string_view text, size_t begin) const {
  for (; begin < text.size(); ++begin) {
    Found found{begin, begin, nullptr};
    uint32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const uint32_t* next = next_.find(pair_key(node, static_cast<unsigned char>(text[at])));
      if (!next) break;
      node = *next;
      if (ends_[node]) found = {begin, at + 1, ends_[node]};
    }
    if (found.token) return found;
  }
  return {text.size(), text.size(), nullptr};
}

namespace {

std::vector<AddedTokens> added_tokens(const Tokenizer& tokenizer, bool allow_special) {
  std::vector<AddedTokens> all;
  for (const bool normalized : {false, true}) {
    AddedTokens some;
    bool is_wanted = false;
    for (const auto& [text, token] : tokenizer.added) {
      if (token.normalized != normalized) continue;
      some.add(text, token);
      is_wanted |= allow_special || !token.special;
    }
    if (is_wanted) all.push_back(std::move(some));
  }
  return all;
}

}  // namespace

Encoder::Encoder(const Tokenizer& tokenizer, bool allow_special)
    : split_(tokenizer.split),
      allow_special_(allow_special),
      merges_(std::make_shared<const MergeTable>(tokenizer)),
      added_(
          std::make_shared<const std::vector<AddedTokens>>(added_tokens(tokenizer, allow_special))),
      cache_(kCacheEntries) {}

Encoder::Encoder(const Encoder& other)
    : split_(other.split_),
      allow_special_(other.allow_special_),
      merges_(other.merges_),
      added_(other.added_),
      cache_(kCacheEntries) {}

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
    words[i] &= kept == 0 ? 0 : UINT64_MAX >> (64 - 8 * kept);  // for a little-endian machine
  }
  return words;
}

Encoder::Piece Encoder::piece_at(std::string_view text, size_t begin) {
  Piece piece{.text = text.substr(begin, piece_end(split_, text, begin) - begin)};
  if (piece.text.size() > sizeof piece.words) return piece;
  piece.words = words_of(text, begin, piece.text.size());
  uint64_t hash = piece.text.size();
  for (const uint64_t word : piece.words) hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
  piece.entry = &cache_[(hash ^ hash >> 32) >> 16 & (kCacheEntries - 1)];
  __builtin_prefetch(piece.entry);
  return piece;
}

bool Encoder::is_cached(const Piece& piece) const {
  if (!piece.entry) return false;
  const auto& [a, b, c] = piece.entry->words;
  const auto& [x, y, z] = piece.words;
  return ((a ^ x) | (b ^ y) | (c ^ z) | (piece.entry->bytes ^ piece.text.size())) == 0;
}

void Encoder::keep(const Piece& piece) {
  if (!piece.entry || ids_.size() > piece.entry->ids.size()) return;
  piece.entry->words = piece.words;
  piece.entry->bytes = static_cast<uint32_t>(piece.text.size());
  piece.entry->count = static_cast<uint32_t>(ids_.size());
  std::ranges::copy(ids_, piece.entry->ids.begin());
}

void Encoder::encode(std::string_view text, std::vector<uint32_t>& out) {
  encode_rest(0, text, out);
}

void Encoder::encode_rest(size_t added, std::string_view text, std::vector<uint32_t>& out) {
  if (added == added_->size()) return encode_pieces(text, out);
  size_t begin = 0, from = 0;
  while (begin < text.size()) {
    const auto [at, end, token] = (*added_)[added].find(text, from);
    from = end;
    // As in Hugging Face's tokenizers, what it hides stays hidden.
    if (token && token->special && !allow_special_) continue;
    encode_rest(added + 1, text.substr(begin, at - begin), out);
    if (token) out.push_back(token->id);
    begin = end;
  }
}

void Encoder::encode_pieces(std::string_view text, std::vector<uint32_t>& out) {
  // Several pieces are found before the first is looked up: meanwhile their entries come from
  // memory.
  std::array<Piece, 16> batch;
  size_t tokens = out.size();
  for (size_t begin = 0; begin < text.size();) {
    size_t pieces = 0;
    for (; pieces < batch.size() && begin < text.size(); begin += batch[pieces++].text.size())
      batch[pieces] = piece_at(text, begin);
    stats_.pieces += static_cast<int64_t>(pieces);
    for (const Piece& piece : std::span(batch).first(pieces)) {
      const bool hit = is_cached(piece);
      if (!hit) merge(piece.text);
      const size_t count = hit ? piece.entry->count : ids_.size();
      if (tokens + std::max(count, kEntryIds) > out.size())
        out.resize(tokens + count + kEntryIds + std::min<size_t>(text.size() - begin, 4096));
      if (hit) {  // all of them are copied: the compiler knows how many
        std::ranges::copy(piece.entry->ids, out.data() + tokens);
        ++stats_.hits;
      } else {
        std::ranges::copy(ids_, out.data() + tokens);
        keep(piece);
      }
      tokens += count;
    }
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
