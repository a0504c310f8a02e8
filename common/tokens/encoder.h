// Encoder: a text as the ids of its tokens, by merges of lowest rank first.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/tokens/merge.h"
#include "common/tokens/pair_map.h"
#include "common/tokens/tokenizer.h"

namespace ladder {

/// What the merges of a tokenizer come to, in the form that an encoder looks things up in.
class MergeTable {
 public:
  explicit MergeTable(const Tokenizer& tokenizer);

  Found find(uint32_t left, uint32_t right) const {
    const Found* found = pairs_.find(pair_key(left, right));
    return found ? *found : Found{kNoRank, 0};
  }
  uint32_t byte(char c) const { return bytes_[static_cast<unsigned char>(c)]; }
  /// The token that a whole piece is, where such a token needs no merges.
  const uint32_t* whole(std::string_view piece) const {
    const auto at = whole_.find(piece);
    return at == whole_.end() ? nullptr : &at->second;
  }

 private:
  PairMap<Found> pairs_;
  std::vector<uint32_t> bytes_;
  std::unordered_map<std::string_view, uint32_t> whole_;  ///< into the tokenizer
};

class Encoder {
 public:
  /// `tokenizer` must outlive it.
  explicit Encoder(const Tokenizer& tokenizer);
  /// Shares the tables of `other`, and has a cache of its own: one for each thread.
  Encoder(const Encoder& other);

  /// Appends the tokens of a text. Special ones are text like all other.
  void encode(std::string_view text, std::vector<uint32_t>& out);

  /// How often the tokens of a piece were in the cache.
  struct Stats {
    int64_t pieces = 0, hits = 0;
  };
  const Stats& stats() const { return stats_; }

 private:
  /// Bytes of a piece that is kept; behind its end they are 0.
  using Words = std::array<uint64_t, 3>;
  static constexpr size_t kEntryIds = 8;
  /// A piece and its tokens, on a cache line. Longer ones are not kept.
  struct alignas(64) Entry {
    Words words{};
    std::array<uint32_t, kEntryIds> ids{};
    uint32_t bytes = 0, count = 0;
  };
  struct Piece {
    std::string_view text{};
    Words words{};
    Entry* entry = nullptr;  ///< where its tokens are, if any are; nullptr: it is too long
  };
  static Words words_of(std::string_view text, size_t begin, size_t bytes);
  void merge(std::string_view piece);
  Piece piece_at(std::string_view text, size_t begin);
  bool is_cached(const Piece& piece) const;
  void keep(const Piece& piece);

  Split split_;
  std::shared_ptr<const MergeTable> merges_;
  std::vector<Entry> cache_;
  std::vector<uint32_t> ids_;  ///< of the piece that was merged last
  Stats stats_;
};

/// The bytes of tokens. @param keep_special writes special ones, too
/// @throws UserError at an id that is no token
std::string decode(const Tokenizer& tokenizer, std::span<const uint32_t> ids, bool keep_special);

}  // namespace ladder
