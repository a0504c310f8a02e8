// Corpora whose truth is known, for tests of the program.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/random.h"
#include "tests/common/programs.h"

namespace ladder::test {

/// A document and the number of the group whose members are equal or nearly so.
struct Planted {
  std::string id, source, text;
  int group;

  std::string line() const {
    return nlohmann::json{{"id", id}, {"source", source}, {"text", text}}.dump() + "\n";
  }
};

/// Texts of random words, which nothing but what is planted makes alike.
class Planter {
 public:
  std::vector<std::string> words(int count) {
    std::vector<std::string> all;
    for (int i = 0; i < count; ++i) {
      std::string& word = all.emplace_back();
      for (int k = 0; k < 7; ++k) word += static_cast<char>('a' + random_.below(26, drawn_++));
    }
    return all;
  }
  static std::string text(const std::vector<std::string>& words) {
    std::string all;
    for (const std::string& word : words) all += (all.empty() ? "" : " ") + word;
    return all;
  }
  /// The same words, but for one near the end: five of its shingles are others.
  std::vector<std::string> edited(std::vector<std::string> words, size_t at) {
    words[at] = this->words(1)[0];
    return words;
  }
  uint64_t below(uint64_t n) { return random_.below(n, drawn_++); }

 private:
  Random random_{7, "planted"};
  uint64_t drawn_ = 0;
};

/// Documents that are alone, exact copies, near copies, chains whose ends are unlike, and different
/// documents that share a beginning (boilerplate).
inline std::vector<Planted> planted() {
  Planter planter;
  std::vector<Planted> all;
  int group = 0;
  const auto add = [&](const std::string& text) {
    const std::string id = std::to_string(planter.below(1000000000));
    all.push_back({id, planter.below(2) ? "web" : "book", text, group});
  };
  const std::vector<std::string> boilerplate = planter.words(40);
  for (int i = 0; i < 200; ++i, ++group) {
    const std::vector<std::string> words = planter.words(200);
    add(Planter::text(words));
    for (int k = 0; k < i % 3; ++k) add(Planter::text(words));
    for (int k = 0; k < i % 4; ++k) add(Planter::text(planter.edited(words, 100)));
    std::vector<std::string> link = words;  // of a chain, each like the one before alone
    for (size_t k = 0; i % 5 == 0 && k < 9; ++k)
      add(Planter::text(link = planter.edited(link, 10 + 20 * k)));
  }
  for (int i = 0; i < 20; ++i, ++group) {
    std::vector<std::string> words = boilerplate;
    for (const std::string& word : planter.words(80)) words.push_back(word);
    add(Planter::text(words));
  }
  for (int i = 0; i < 3; ++i, ++group)  // too short for a shingle
    for (int k = 0; k < 2; ++k) add("short text " + std::to_string(i));
  return all;
}

}  // namespace ladder::test
