// MinHash: a signature of a few numbers for each text. Two texts agree at about as large a share of
// them as their sets of shingles overlap. Texts that share a band of them are near duplicates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/checksum.h"
#include "common/run/command_line.h"
#include "common/tokens/unicode.h"

namespace ladder {

struct MinHashOptions {
  int64_t bands = 14, rows = 8, shingle = 5;

  void add_to(CommandLine& line) {
    line.group("25_corpus --dedup near");
    const FlagRules near{.needs = {"--dedup near"}};
    line.add("--bands", bands, "bands of a signature: texts that share one are near duplicates",
             near);
    line.add("--rows", rows, "numbers of a band", near);
    line.add("--shingle", shingle, "words of a shingle", near);
  }
  /// @throws UserError
  void check() const {
    require_range("--bands", bands, 1, 1024);
    require_range("--rows", rows, 1, 1024);
    require_range("--shingle", shingle, 1, 64);
  }
};

/// The probability that two texts share a band, if their similarity |A and B| / |A or B| is `s`.
inline double shares_a_band(double s, int64_t bands, int64_t rows) {
  double is_equal = 1, none_is = 1;  // probabilities: one band is equal; no band is
  for (int64_t row = 0; row < rows; ++row) is_equal *= s;
  for (int64_t band = 0; band < bands; ++band) none_is *= 1 - is_equal;
  return 1 - none_is;
}

/// Words of a text, with a blank behind each and A to Z in lower case. A word is a run of letters
/// and numbers.
struct PlainWords {
  std::string text;
  std::vector<size_t> begins;  ///< of words, and the end of the text

  explicit PlainWords(std::string_view of) {
    bool in_word = false;
    for (size_t at = 0; at < of.size();) {
      const Char c = char_at(of, at);
      const bool is_word = c.kind == CharClass::Letter || c.kind == CharClass::Number;
      if (is_word && !in_word) begins.push_back(text.size());
      if (!is_word && in_word) text += ' ';
      if (is_word) text += of.substr(at, c.bytes);
      if (c.code >= 'A' && c.code <= 'Z') text.back() = static_cast<char>(c.code - 'A' + 'a');
      in_word = is_word;
      at += c.bytes;
    }
    if (in_word) text += ' ';
    begins.push_back(text.size());
  }
  size_t size() const { return begins.size() - 1; }
  /// n words from word i on, with a blank between them.
  std::string_view gram(size_t i, size_t n) const {
    return std::string_view(text).substr(begins[i], begins[i + n] - 1 - begins[i]);
  }
};

/// Hashes of all n words in a row, from left to right. A text of fewer words has none.
inline std::vector<uint64_t> shingles(const PlainWords& words, int64_t n) {
  const auto size = static_cast<size_t>(n);
  std::vector<uint64_t> hashes;
  for (size_t i = 0; i + size <= words.size(); ++i) hashes.push_back(hash64(words.gram(i, size)));
  return hashes;
}

constexpr uint64_t kMersenne61 = (uint64_t{1} << 61) - 1;

/// x modulo 2^61 - 1. Modulo this number 2^61 is 1, so the three high bits of x are added below.
inline uint64_t mod_mersenne61(uint64_t x) {
  const uint64_t sum = (x & kMersenne61) + (x >> 61);
  return sum >= kMersenne61 ? sum - kMersenne61 : sum;
}

/// Hash functions x -> (a x + b) modulo 2^61 - 1. The product and the sum wrap at 2^64 before the
/// modulus, as they do in datatrove.
struct HashFunctions {
  std::vector<uint64_t> a, b;

  /// The same a and b as datatrove's, which NumPy's RandomState(1) draws: all a, then all b.
  explicit HashFunctions(int64_t count) {
    std::mt19937 random(1);
    for (int64_t i = 0; i < count; ++i) a.push_back(1 + below(random, kMersenne61 - 1));
    for (int64_t i = 0; i < count; ++i) b.push_back(below(random, kMersenne61));
  }

 private:
  /// Draws 61 bits, and again until they are below n.
  static uint64_t below(std::mt19937& random, uint64_t n) {
    for (;;) {
      const uint64_t high = random(), low = random();
      const uint64_t drawn = (high << 32 | low) & kMersenne61;
      if (drawn < n) return drawn;
    }
  }
};

/// The least value of each function over all shingles.
inline std::vector<uint64_t> signature(std::span<const uint64_t> shingles,
                                       const HashFunctions& functions) {
  const size_t count = functions.a.size();
  std::vector<uint64_t> least(count, UINT64_MAX);
  for (const uint64_t x : shingles)
    for (size_t i = 0; i < count; ++i)
      least[i] = std::min(least[i], mod_mersenne61(x * functions.a[i] + functions.b[i]));
  return least;
}

/// A key for each band: a hash of its numbers, with the number of the band as the seed. So bands of
/// different places have different keys, even if they hold the same values.
inline std::vector<Hash128> band_keys(std::span<const uint64_t> signature, int64_t rows) {
  const auto each = static_cast<size_t>(rows);
  std::vector<Hash128> keys;
  for (size_t band = 0; band * each < signature.size(); ++band) {
    const auto numbers = std::as_bytes(signature.subspan(band * each, each));
    keys.push_back(hash128({reinterpret_cast<const char*>(numbers.data()), numbers.size()}, band));
  }
  return keys;
}

}  // namespace ladder
