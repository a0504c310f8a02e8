// What a trainer starts from, words with their counts, and what it makes: merges, and the tokens
// that they give.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/names.h"
#include "common/tokens/documents.h"
#include "common/tokens/tokenizer.h"

namespace ladder {

/// Which of two pairs that are equally frequent is merged first. Programs differ in this alone.
enum class Ties : uint8_t {
  Hf,     ///< the lower pair of ids; the first ids are the bytes by their characters, '!' first
  Bytes,  ///< the lower pair of ids; the first ids are the bytes by their values
  Cs336   ///< the greater pair of the tokens' bytes
};
constexpr auto names_of(Ties) { return std::array{"hf", "bytes", "cs336"}; }

/// A piece of the text (a word, where pieces are words), and how often it occurs.
struct WordCount {
  std::string bytes;
  int64_t count;
};

/// Two tokens that are neighbors, and how often they are.
struct PairCount {
  int64_t count;
  uint32_t left, right;

  std::pair<uint32_t, uint32_t> ids() const { return {left, right}; }
};

class Vocabulary;
/// Whether `a` is merged before `b`: the more frequent one, and of equals the one that Ties says.
bool comes_first(const Vocabulary& vocabulary, const PairCount& a, const PairCount& b);

class Vocabulary {
 public:
  /// The 256 bytes. @param tokens that it may grow to
  Vocabulary(Ties ties, int64_t tokens) : ties_(ties), limit_(tokens) {
    const std::string order = alphabet();
    for (int byte = 0; byte < 256; ++byte) {
      const char c = ties == Ties::Hf ? order[static_cast<size_t>(byte)] : static_cast<char>(byte);
      byte_ids_[static_cast<unsigned char>(c)] = static_cast<uint32_t>(byte);
      tokens_.emplace_back(1, c);
    }
  }
  Ties ties() const { return ties_; }
  bool is_full() const { return std::ssize(tokens_) >= limit_; }
  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<Merge>& merges() const { return merges_; }
  std::vector<uint32_t> ids(std::string_view word) const {
    std::vector<uint32_t> all;
    for (const char c : word) all.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    return all;
  }

  /// comes_first(), counted.
  bool before(const PairCount& a, const PairCount& b) const {
    ++compared_;
    return comes_first(*this, a, b);
  }
  int64_t compared() const { return compared_; }

  /// The token that the pair becomes. If two pairs have the same bytes, as (a, bc) and (ab, c), the
  /// second one gives the token that is there, and adds none. No text trains both: wherever "abc"
  /// stands between two borders that no merge has crossed, it has had the same merges.
  uint32_t add(const PairCount& pair) {
    std::string bytes = tokens_[pair.left] + tokens_[pair.right];
    const auto [at, is_new] = known_.emplace(bytes, static_cast<uint32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(std::move(bytes));
    merges_.push_back({pair.left, pair.right, at->second, static_cast<uint32_t>(merges_.size())});
    return at->second;
  }
  /// To be called when the text is merged by `pair`: it then has `fewer` tokens fewer.
  void merged(const PairCount& pair, int64_t fewer) const {
    if (watch) watch(pair, fewer);
  }
  std::function<void(const PairCount&, int64_t)> watch;  ///< told of each merge as it happens

 private:
  Ties ties_;
  int64_t limit_;
  std::array<uint32_t, 256> byte_ids_{};
  std::vector<std::string> tokens_;
  std::vector<Merge> merges_;
  std::unordered_map<std::string, uint32_t> known_;
  mutable int64_t compared_ = 0;
};

/// The pieces of all documents, by their bytes: threads, files and their order change nothing.
inline std::vector<WordCount> count_words(Documents& documents, Split split, int threads) {
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  using Counts = std::unordered_map<std::string, int64_t, Hash, std::equal_to<>>;
  std::vector<Counts> counts(static_cast<size_t>(threads));
  for_parts(documents, threads, [&](size_t thread, const TextPart& part) {
    const std::string_view text = part.text;
    auto document = part.ends.begin();
    for (size_t begin = 0; begin < text.size();) {
      while (document != part.ends.end() && *document <= begin) ++document;
      const size_t limit = document == part.ends.end() ? text.size() : *document;
      const size_t end = piece_end(split, text.substr(0, limit), begin);
      const std::string_view piece = text.substr(begin, end - begin);
      const auto known = counts[thread].find(piece);
      known == counts[thread].end() ? counts[thread].emplace(piece, 1).first->second
                                    : ++known->second;
      begin = end;
    }
  });
  std::map<std::string, int64_t> all;
  for (const Counts& some : counts)
    for (const auto& [word, count] : some) all[word] += count;
  std::vector<WordCount> words;
  for (const auto& [word, count] : all) words.push_back({word, count});
  return words;
}

}  // namespace ladder
