// The trainers. Both merge the most frequent pair of neighbors, again and again. The plain one
// counts all pairs anew each time. The fast one knows where each pair stands, changes the counts of
// its neighbors alone, and finds the next pair in a heap. They make the same merges.
#pragma once

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "chapters/24_tokenizer/vocabulary.h"
#include "common/tokens/pair_map.h"

namespace ladder {

inline bool comes_first(const Vocabulary& vocabulary, const PairCount& a, const PairCount& b) {
  if (a.count != b.count) return a.count > b.count;
  if (vocabulary.ties() != Ties::Cs336) return a.ids() < b.ids();
  const auto bytes = [&](const PairCount& pair) {
    return std::tie(vocabulary.tokens()[pair.left], vocabulary.tokens()[pair.right]);
  };
  return bytes(a) > bytes(b);
}

// ---- plain --------------------------------------------------------------------------------------

/// A word as tokens, and its count.
struct TokenWord {
  std::vector<uint32_t> ids;
  int64_t count;
};

/// How often each pair of neighbors is in all words. In "aaa" the pair (a, a) is twice.
inline std::map<std::pair<uint32_t, uint32_t>, int64_t> count_pairs(
    const std::vector<TokenWord>& words) {
  std::map<std::pair<uint32_t, uint32_t>, int64_t> counts;
  for (const auto& [ids, count] : words)
    for (size_t i = 0; i + 1 < ids.size(); ++i) counts[{ids[i], ids[i + 1]}] += count;
  return counts;
}

/// Each pair becomes `id`, from left to right: "aaa" becomes (aa, a).
inline void merge_pair(std::vector<uint32_t>& ids, const PairCount& pair, uint32_t id) {
  size_t kept = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_pair = i + 1 < ids.size() && ids[i] == pair.left && ids[i + 1] == pair.right;
    ids[kept++] = is_pair ? id : ids[i];
    i += is_pair;
  }
  ids.resize(kept);
}

inline void train_plain(const std::vector<WordCount>& text, Vocabulary& vocabulary) {
  std::vector<TokenWord> words;
  for (const auto& [bytes, count] : text) words.push_back({vocabulary.ids(bytes), count});
  while (!vocabulary.is_full()) {
    PairCount best{};
    for (const auto& [pair, count] : count_pairs(words)) {
      const PairCount candidate{count, pair.first, pair.second};
      if (best.count == 0 || vocabulary.before(candidate, best)) best = candidate;
    }
    if (best.count == 0) return;  // each word is one token
    const uint32_t id = vocabulary.add(best);
    int64_t fewer = 0;
    for (auto& [ids, count] : words) {
      const auto before = std::ssize(ids);
      merge_pair(ids, best, id);
      fewer += count * (before - std::ssize(ids));
    }
    vocabulary.merged(best, fewer);
  }
}

// ---- fast ---------------------------------------------------------------------------------------

class FastTrainer {
 public:
  FastTrainer(const std::vector<WordCount>& words, Vocabulary& vocabulary);
  /// Merges until the vocabulary is full, or each word is one token.
  void train();

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  /// A token in a word. Where two were merged, the second one's place is empty: its id is kNone.
  struct Place {
    uint32_t id, before, next;  ///< kNone: the word begins, or ends, here
    uint32_t word;
  };
  /// A pair of neighbors: how often, and the places of its left tokens. A place that has become
  /// something else stays in the list until the pair is merged.
  struct Pair {
    int64_t count = 0;
    std::vector<uint32_t> places;
  };
  void appear(uint32_t place);
  void vanish(uint32_t left, uint32_t right, uint32_t place);
  int64_t merge(const PairCount& pair, uint32_t id);
  void push_new();

  Vocabulary& vocabulary_;
  std::vector<int64_t> counts_;  ///< of words
  std::vector<Place> places_;
  PairMap<Pair> pairs_;
  std::vector<uint64_t> new_pairs_;  ///< whose counts have grown since the last push_new()

  struct Later {
    const Vocabulary* vocabulary;
    bool operator()(const PairCount& a, const PairCount& b) const {
      return vocabulary->before(b, a);
    }
  };
  std::priority_queue<PairCount, std::vector<PairCount>, Later> heap_;
};

inline FastTrainer::FastTrainer(const std::vector<WordCount>& words, Vocabulary& vocabulary)
    : vocabulary_(vocabulary), heap_(Later{&vocabulary}) {
  for (const auto& [bytes, count] : words) {
    const auto begin = static_cast<uint32_t>(places_.size());
    const auto word = static_cast<uint32_t>(counts_.size());
    counts_.push_back(count);
    for (const uint32_t id : vocabulary.ids(bytes)) {
      const auto at = static_cast<uint32_t>(places_.size());
      places_.push_back({id, at == begin ? kNone : at - 1, at + 1, word});
    }
    if (places_.size() > begin) places_.back().next = kNone;
    for (uint32_t at = begin; at + 1 < places_.size(); ++at) appear(at);
  }
  push_new();
}

/// The token at `place` and the next one have become neighbors.
inline void FastTrainer::appear(uint32_t place) {
  const Place& left = places_[place];
  const uint64_t key = pair_key(left.id, places_[left.next].id);
  Pair& pair = pairs_[key];
  pair.count += counts_[left.word];
  pair.places.push_back(place);
  if (new_pairs_.empty() || new_pairs_.back() != key) new_pairs_.push_back(key);
}

/// Two tokens of the word of `place` are neighbors no more.
inline void FastTrainer::vanish(uint32_t left, uint32_t right, uint32_t place) {
  pairs_[pair_key(left, right)].count -= counts_[places_[place].word];
}

inline void FastTrainer::push_new() {
  std::ranges::sort(new_pairs_);
  const auto repeated = std::ranges::unique(new_pairs_);
  new_pairs_.erase(repeated.begin(), repeated.end());
  for (const uint64_t key : new_pairs_)
    if (const int64_t count = pairs_[key].count; count > 0)
      heap_.push({count, static_cast<uint32_t>(key >> 32), static_cast<uint32_t>(key)});
  new_pairs_.clear();
}

/// @return how many tokens fewer the text has afterwards
inline int64_t FastTrainer::merge(const PairCount& pair, uint32_t id) {
  int64_t fewer = 0;
  // The places of a pair ascend, so "aaa" is merged from left to right. For one walk has added all
  // of them: the constructor's, or that of the merge which made the later one of the two tokens. No
  // other merge makes a token of these bytes (Vocabulary::add).
  for (const uint32_t at : std::exchange(pairs_[pair_key(pair.left, pair.right)].places, {})) {
    Place& left = places_[at];
    if (left.id != pair.left || left.next == kNone || places_[left.next].id != pair.right) continue;
    Place& right = places_[left.next];
    if (left.before != kNone) vanish(places_[left.before].id, left.id, at);
    vanish(left.id, right.id, at);
    if (right.next != kNone) vanish(right.id, places_[right.next].id, at);
    left.id = id;
    left.next = right.next;
    right.id = kNone;
    if (left.next != kNone) places_[left.next].before = at;
    if (left.before != kNone) appear(left.before);
    if (left.next != kNone) appear(at);
    fewer += counts_[left.word];
  }
  return fewer;
}

inline void FastTrainer::train() {
  while (!vocabulary_.is_full() && !heap_.empty()) {
    PairCount best = heap_.top();
    heap_.pop();
    const int64_t now = pairs_[pair_key(best.left, best.right)].count;
    if (now < best.count) {  // merges have taken some; it goes back to where it belongs
      best.count = now;
      if (now > 0) heap_.push(best);
      continue;
    }
    const uint32_t id = vocabulary_.add(best);
    vocabulary_.merged(best, merge(best, id));
    push_new();
  }
}

}  // namespace ladder
