// Small corpora and pieces with all that is hard: ties, "aaa", counts over 32 bits, pieces of
// thousands of bytes. Merges, pieces and ids are compared; comparisons of pairs and lookups of
// merges are counted. How steps grow with the input shows a scan that neither count sees.
#include "labs/check.h"

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "chapters/24_tokenizer/vocabulary.h"

namespace ladder {

/// What a trainer compares without Vocabulary::before(): its vocabulary can be changed, so this one
/// is preferred to the student's.
inline int64_t compared_beside = 0;
inline bool comes_first(Vocabulary& vocabulary, const PairCount& a, const PairCount& b) {
  ++compared_beside;
  return comes_first(std::as_const(vocabulary), a, b);
}

}  // namespace ladder

#include "chapters/24_tokenizer/trainer.h"
#include "common/tokens/merge.h"
#include "common/tokens/split.h"
#include "labs/steps.h"

namespace ladder::lab {
namespace {

using Words = std::vector<WordCount>;

class Draw {
 public:
  Draw(const Sheet& sheet, std::string_view name) : random_(sheet.seed(), name) {}
  uint64_t below(uint64_t n) { return random_.below(n, drawn_++); }
  std::string word(std::string_view letters, uint64_t longest) {
    std::string made;
    for (uint64_t n = 1 + below(longest); n > 0; --n) made += letters[below(letters.size())];
    return made;
  }

 private:
  Random random_;
  uint64_t drawn_ = 0;
};

Words corpus(Draw& draw, std::string_view letters, int64_t most) {
  std::map<std::string, int64_t> counts;
  for (int i = 0; i < 30; ++i)
    counts[draw.word(letters, 9)] =
        static_cast<int64_t>(1 + draw.below(static_cast<uint64_t>(most)));
  Words words;
  for (const auto& [bytes, count] : counts) words.push_back({bytes, count});
  return words;
}

/// A vocabulary that writes down what it is told of each merge.
struct Told {
  Told(Ties ties, int64_t tokens) : vocabulary(ties, tokens) {
    vocabulary.watch = [this](const PairCount&, int64_t fewer) {
      const auto& [left, right, result, rank] = vocabulary.merges().back();
      all += fmt::format("{} {} = {} ({} fewer), ", left, right, result, fewer);
    };
  }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

  Vocabulary vocabulary;
  std::string all;
};

/// Pairs of the letters above, and of a, b, aa, ab, ba, bb, some of them equally frequent.
void run_ties(Sheet& sheet, Ties ties) {
  Draw draw(sheet, "ties");
  Vocabulary vocabulary(ties, 262);
  std::vector<uint32_t> near = vocabulary.ids("ab");
  for (size_t i = 0; i < 4; ++i) near.push_back(vocabulary.add({1, near[i / 2], near[i % 2]}));
  for (int i = 0; i < 2; ++i)
    vocabulary.add(
        {1, static_cast<uint32_t>(draw.below(256)), static_cast<uint32_t>(draw.below(256))});
  for (int i = 0; i < 8; ++i) {
    std::string answers;
    for (int k = 0; k < 40; ++k) {
      const auto pair = [&] {
        if (k % 2 == 0)
          return PairCount{static_cast<int64_t>(draw.below(2)), near[draw.below(6)],
                           near[draw.below(6)]};
        return PairCount{static_cast<int64_t>(draw.below(2)),
                         static_cast<uint32_t>(200 + draw.below(62)),
                         static_cast<uint32_t>(draw.below(262))};
      };
      const PairCount a = pair(), b = pair();
      answers += comes_first(vocabulary, a, b) ? '1' : '0';
    }
    sheet.text(fmt::format("ties/{}: {}", to_string(ties), i), answers);
  }
}

struct Corpus {
  std::string name, letters;
  int64_t most;
  Ties ties = Ties::Hf;
  int64_t more_merges = 0;
};

void run_trainers(Sheet& sheet, const Corpus& c) {
  Draw draw(sheet, c.name);
  Words words = corpus(draw, c.letters, c.most);
  if (c.most > INT32_MAX) words.push_back({"zq", (int64_t{1} << 32) + 1});
  const int64_t tokens = 256 + sheet.pick<int64_t>("merges", {24, 30}) + c.more_merges;
  Told plain(c.ties, tokens);
  train_plain(words, plain.vocabulary);
  sheet.text("plain", plain.all);
  Told fast(c.ties, tokens);
  FastTrainer trainer(words, fast.vocabulary);
  const int64_t before = fast.vocabulary.compared() + compared_beside;
  trainer.train();
  sheet.text("fast", fast.all);
  // Without a heap each merge compares all pairs of letters that there are.
  const auto letters = static_cast<int64_t>(c.letters.size());
  sheet.without_idea("compared", (tokens - 256) * letters * letters);
  sheet.count("compared", fast.vocabulary.compared() + compared_beside - before);
}

/// Rare words are no work for a trainer that does not look at all of the text for each merge.
void run_growth_of_training(Sheet& sheet) {
  Draw draw(sheet, "growth");
  Words words = corpus(draw, "abcdefghijklmnop", 9);
  for (WordCount& word : words) word.count *= 10000;
  const auto steps = [&words] {
    Vocabulary vocabulary(Ties::Hf, 280);
    FastTrainer trainer(words, vocabulary);
    return steps_of([&] { trainer.train(); });
  };
  const int64_t few = steps();
  for (int i = 0; i < 400; ++i) words.push_back({draw.word("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 9), 1});
  const int64_t times = steps() / few;
  sheet.text("fast/growth: with many words that are never merged",
             times <= 3 ? "about as many steps" : fmt::format("{} times as many steps", times));
}

void run_blanks(Sheet& sheet, Split split) {
  Draw draw(sheet, "blanks");
  for (int i = 0; i < 8; ++i) {
    std::string text, cut;
    while (text.size() < 100) {
      text += draw.word("a1! \t\n", 6);
      text += std::array{"", "\u00A0", "\u2003", "\u3000"}[draw.below(4)];  // white space, too
    }
    for (size_t begin = 0; begin < text.size(); cut += '|') {
      const size_t end = piece_end(split, text, begin);
      cut += text.substr(begin, end - begin);
      begin = end;
    }
    sheet.text(fmt::format("blanks/{}: {}", to_string(split), i), cut);
  }
}

/// Merges of a tokenizer, which counts how often it is asked. Ids do not ascend as ranks do.
class Counted {
 public:
  explicit Counted(const std::vector<std::pair<std::string, std::string>>& merges) {
    for (const auto& [left, right] : merges) {
      const uint32_t id = 300 - static_cast<uint32_t>(all_.size());
      all_[{ids_.at(left), ids_.at(right)}] = {static_cast<uint32_t>(all_.size()), id};
      ids_[left + right] = id;
    }
  }
  Found find(uint32_t left, uint32_t right) const {
    ++asked;
    const auto at = all_.find({left, right});
    return at == all_.end() ? Found{kNoRank, 0} : at->second;
  }
  mutable int64_t asked = 0;

 private:
  std::map<std::string, uint32_t> ids_{{"a", 'a'}, {"b", 'b'}, {"c", 'c'}};
  std::map<std::pair<uint32_t, uint32_t>, Found> all_;
};

const std::vector<std::pair<std::string, std::string>> kMerges = {
    {"b", "c"},   {"a", "a"},   {"aa", "a"},  {"a", "b"}, {"aa", "aa"}, {"a", "bc"},
    {"bc", "bc"}, {"ab", "ab"}, {"aa", "bc"}, {"c", "a"}, {"aaa", "b"}, {"ca", "ca"}};

std::string shown(const std::vector<uint32_t>& ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

void run_pieces(Sheet& sheet, bool is_long) {
  Draw draw(sheet, is_long ? "long" : "short");
  const Counted merges(kMerges);
  for (int i = 0; i < (is_long ? 4 : 60); ++i) {
    // The last piece is one letter, many times.
    const std::string bytes =
        is_long ? i == 3 ? std::string(1500, 'a') : draw.word("aabc", 1) + draw.word("aabc", 1500)
                : draw.word("aabc", 30);
    std::vector<uint32_t> ids(bytes.begin(), bytes.end());
    is_long ? merge_long(merges, ids) : merge_short(merges, ids);
    sheet.text(fmt::format("ids/{}: {}", is_long ? "long" : "short", i), shown(ids));
  }
}

/// Looking up all pairs again for each merge takes n lookups a merge.
void run_lookups(Sheet& sheet) {
  Draw draw(sheet, "lookups");
  const Counted merges(kMerges);
  std::string bytes;
  while (bytes.size() < 1500) bytes += draw.word("aabc", 9);
  std::vector<uint32_t> ids(bytes.begin(), bytes.end());
  const auto n = static_cast<int64_t>(ids.size());
  merge_long(merges, ids);
  sheet.text("ids/long: counted", shown(ids));
  sheet.without_idea("lookups", n * (n - std::ssize(ids)) / 2);
  sheet.count("lookups", merges.asked);
}

/// n log n is 4.7 times as much for four times the bytes, n n 16 times.
void run_growth_of_merging(Sheet& sheet) {
  Draw draw(sheet, "growth");
  const Counted merges(kMerges);
  const auto steps = [&](size_t n) {
    std::vector<uint32_t> ids;
    while (ids.size() < n) ids.push_back(static_cast<uint32_t>("aabc"[draw.below(4)]));
    return steps_of([&] { merge_long(merges, ids); });
  };
  const int64_t few = steps(1000), times = steps(4000) / few;
  sheet.text("ids/long: four times the bytes",
             times <= 8 ? "as many steps as n log n" : fmt::format("{} times the steps", times));
}

}  // namespace

void cases(Sheet& sheet) {
  for (const Ties ties : {Ties::Hf, Ties::Bytes, Ties::Cs336})
    sheet.run(fmt::format("pairs, {}", to_string(ties)), [&] { run_ties(sheet, ties); });
  for (const Corpus& c : {Corpus{"letters", "abcdefghijklmnop", 3}, Corpus{"few letters", "aab", 2},
                          Corpus{"frequent letters", "abcdefgh", int64_t{1} << 33},
                          Corpus{"letters, cs336", "abcdefghijkl", 2, Ties::Cs336},
                          Corpus{"all is merged", "ab", 1, Ties::Bytes, 200}})
    sheet.run(c.name, [&] { run_trainers(sheet, c); });
  sheet.run("a longer text", [&] { run_growth_of_training(sheet); });
  for (const Split split : {Split::Gpt2, Split::Llama3, Split::Cl100k})
    sheet.run(fmt::format("blanks, {}", to_string(split)), [&] { run_blanks(sheet, split); });
  sheet.run("short pieces", [&] { run_pieces(sheet, false); });
  sheet.run("long pieces", [&] { run_pieces(sheet, true); });
  sheet.run("a piece of 1500 bytes", [&] { run_lookups(sheet); });
  sheet.run("longer pieces", [&] { run_growth_of_merging(sheet); });
}

}  // namespace ladder::lab
