#include "common/tokens/encoder.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "common/error.h"

namespace ladder {
namespace {

constexpr size_t kCacheEntries = 1 << 16;  // 4 MiB of them
constexpr size_t kShort = 48;              // bytes of a piece that merge_short() takes
constexpr uint32_t kNone = UINT32_MAX;

}  // namespace

MergeTable::MergeTable(const Tokenizer& tokenizer)
    : pairs_(tokenizer.merges.size()), bytes_(byte_ids(tokenizer)) {
  for (const Merge& m : tokenizer.merges) pairs_[pair_key(m.left, m.right)] = {m.rank, m.result};
  if (!tokenizer.whole_words) return;
  for (uint32_t id = 0; id < tokenizer.tokens.size(); ++id)
    if (!tokenizer.tokens[id].empty() && !tokenizer.is_special(id))
      whole_.emplace(tokenizer.tokens[id], id);
}

void merge_short(const MergeTable& merges, std::vector<uint32_t>& ids) {
  std::vector<MergeTable::Found> found(ids.size());  // of each token and the next one
  for (size_t i = 0; i + 1 < ids.size(); ++i) found[i] = merges.find(ids[i], ids[i + 1]);
  while (ids.size() > 1) {
    const auto end = found.begin() + static_cast<int64_t>(ids.size()) - 1;
    const auto best = std::min_element(
        found.begin(), end, [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (best->rank == kNone) return;
    const int64_t i = best - found.begin();
    ids[static_cast<size_t>(i)] = best->result;
    ids.erase(ids.begin() + i + 1);
    found.erase(found.begin() + i + 1);
    const auto at = static_cast<size_t>(i);
    if (at > 0) found[at - 1] = merges.find(ids[at - 1], ids[at]);
    found[at] = at + 1 < ids.size() ? merges.find(ids[at], ids[at + 1]) : MergeTable::Found{};
  }
}

void merge_long(const MergeTable& merges, std::vector<uint32_t>& ids) {
  // A chain of the places that still hold a token; the others hold kNone.
  const auto n = static_cast<uint32_t>(ids.size());
  std::vector<uint32_t> next(n), before(n);
  // Places whose token can merge with the next one, by rank. Some are out of date: what they say is
  // looked up again.
  std::map<uint32_t, std::vector<uint32_t>> queue;
  const auto enqueue = [&](uint32_t i) {
    const uint32_t rank = next[i] < n ? merges.find(ids[i], ids[next[i]]).rank : kNone;
    if (rank != kNone) queue[rank].push_back(i);
    return rank;
  };
  for (uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    before[i] = i - 1;
  }
  for (uint32_t i = 0; i < n; ++i) enqueue(i);
  while (!queue.empty()) {
    const uint32_t rank = queue.begin()->first;
    std::vector<uint32_t> places = std::move(queue.begin()->second);
    queue.erase(queue.begin());
    if (!std::ranges::is_sorted(places)) std::ranges::sort(places);
    for (size_t k = 0; k < places.size(); ++k) {
      const uint32_t i = places[k];
      if (ids[i] == kNone || next[i] >= n) continue;
      const auto found = merges.find(ids[i], ids[next[i]]);
      if (found.rank != rank) continue;
      ids[i] = found.result;
      ids[next[i]] = kNone;
      next[i] = next[next[i]];
      if (next[i] < n) before[next[i]] = i;
      uint32_t lowest = enqueue(i);
      if (i > 0) lowest = std::min(lowest, enqueue(before[i]));
      if (lowest > rank) continue;
      // A new pair comes before, or among, those that are left.
      auto& rest = queue[rank];
      rest.insert(rest.end(), places.begin() + static_cast<int64_t>(k) + 1, places.end());
      break;
    }
  }
  std::erase(ids, kNone);
}

Encoder::Encoder(const Tokenizer& tokenizer)
    : split_(tokenizer.split),
      merges_(std::make_shared<const MergeTable>(tokenizer)),
      cache_(kCacheEntries) {}

Encoder::Encoder(const Encoder& other)
    : split_(other.split_), merges_(other.merges_), cache_(kCacheEntries) {}

std::span<const uint32_t> Encoder::merged(std::string_view piece) {
  ids_.clear();
  if (const uint32_t* id = merges_->whole(piece)) {
    ids_.push_back(*id);
    return ids_;
  }
  for (const char c : piece) ids_.push_back(merges_->byte(c));
  piece.size() <= kShort ? merge_short(*merges_, ids_) : merge_long(*merges_, ids_);
  return ids_;
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

void Encoder::encode_piece(std::string_view text, size_t begin, size_t end,
                           std::vector<uint32_t>& out) {
  ++stats_.pieces;
  const size_t bytes = end - begin;
  if (bytes > sizeof(Words)) {
    const auto ids = merged(text.substr(begin, bytes));
    out.insert(out.end(), ids.begin(), ids.end());
    return;
  }
  const Words words = words_of(text, begin, bytes);
  uint64_t hash = bytes;
  for (const uint64_t word : words) hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
  Entry& entry = cache_[(hash ^ hash >> 32) >> 16 & (kCacheEntries - 1)];
  if (entry.bytes == bytes && entry.words == words) {
    ++stats_.hits;
    out.insert(out.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
    return;
  }
  const auto ids = merged(text.substr(begin, bytes));
  out.insert(out.end(), ids.begin(), ids.end());
  if (ids.size() > entry.ids.size()) return;
  entry.words = words;
  entry.bytes = static_cast<uint8_t>(bytes);
  entry.count = static_cast<uint8_t>(ids.size());
  std::ranges::copy(ids, entry.ids.begin());
}

void Encoder::encode(std::string_view text, std::vector<uint32_t>& out) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = piece_end(split_, text, begin);
    encode_piece(text, begin, end, out);
    begin = end;
  }
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
