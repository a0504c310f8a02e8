// Encoder: turns a text into the ids of its tokens. Merges of the lowest rank come first.
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

/// The merges of a tokenizer, in tables for an encoder.
class MergeTable {
 public:
  explicit MergeTable(const Tokenizer& tokenizer);

  Found find(uint32_t left, uint32_t right) const {
    const Found* found = pairs_.find(pair_key(left, right));
    return found ? *found : Found{kNoRank, 0};
  }
  uint32_t byte(char c) const { return bytes_[static_cast<unsigned char>(c)]; }
  /// The token that is this whole piece, if the tokenizer has whole_words; otherwise null.
  const uint32_t* whole(std::string_view piece) const {
    const auto at = whole_.find(piece);
    return at == whole_.end() ? nullptr : &at->second;
  }

 private:
  PairMap<Found> pairs_;
  std::vector<uint32_t> bytes_;
  std::unordered_map<std::string_view, uint32_t> whole_;  ///< the texts belong to the tokenizer
};

/// Finds added tokens in a text: the leftmost, and the longest of those that begin there.
class AddedTokens {
 public:
  struct Found {
    size_t begin, end;
    const AddedToken* token;  ///< null: there is none, and both ends are that of the text
  };
  void add(std::string_view text, const AddedToken& token);
  Found find(std::string_view text, size_t begin) const;

 private:
  PairMap<uint32_t> next_;                        ///< a tree of bytes: (node, byte) -> node
  std::vector<const AddedToken*> ends_{nullptr};  ///< the token that ends at a node, if one does
};

class Encoder {
 public:
  /// `tokenizer` must outlive it.
  /// @param allow_special whether a text that spells a special token becomes that token
  explicit Encoder(const Tokenizer& tokenizer, bool allow_special = false);
  /// Shares the tables of `other`, and has its own cache. Each thread needs an encoder.
  Encoder(const Encoder& other);

  /// Appends the tokens of a text.
  void encode(std::string_view text, std::vector<uint32_t>& out);

  /// How many pieces there were, and how many of them were in the cache.
  struct Stats {
    int64_t pieces = 0, hits = 0;
  };
  const Stats& stats() const { return stats_; }

 private:
  /// The bytes of a piece in the cache, filled up with zeros.
  using Words = std::array<uint64_t, 3>;
  static constexpr size_t kEntryIds = 8;
  /// A piece and its tokens, on one cache line. Longer pieces are not kept.
  struct alignas(64) Entry {
    Words words{};
    std::array<uint32_t, kEntryIds> ids{};
    uint32_t bytes = 0, count = 0;
  };
  struct Piece {
    std::string_view text{};
    Words words{};
    Entry* entry = nullptr;  ///< its place in the cache; null: it is too long to be kept
  };
  void encode_rest(size_t added, std::string_view text, std::vector<uint32_t>& out);
  void encode_pieces(std::string_view text, std::vector<uint32_t>& out);
  static Words words_of(std::string_view text, size_t begin, size_t bytes);
  void merge(std::string_view piece);
  Piece piece_at(std::string_view text, size_t begin);
  bool is_cached(const Piece& piece) const;
  void keep(const Piece& piece);

  Split split_;
  bool allow_special_;
  std::shared_ptr<const MergeTable> merges_;
  std::shared_ptr<const std::vector<AddedTokens>> added_;  ///< each looks at what the last leaves
  std::vector<Entry> cache_;
  std::vector<uint32_t> ids_;  ///< the tokens of the piece that was merged last
  Stats stats_;
};

/// The bytes of tokens. @param keep_special whether special tokens are written, too
/// @throws UserError if an id is no token
std::string decode(const Tokenizer& tokenizer, std::span<const uint32_t> ids, bool keep_special);

}  // namespace ladder
