// Signatures of random shingles and texts, keys of bands, and components of random pairs: numbers
// are compared, and looks at parents are counted.
#include "labs/check.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "chapters/25_corpus/components.h"
#include "chapters/25_corpus/minhash.h"

namespace ladder::lab {
namespace {

class Numbers {
 public:
  Numbers(const Sheet& sheet, std::string_view name) : random_(sheet.seed(), name) {}
  uint64_t any() { return random_.bits(drawn_++)[0]; }
  uint64_t below(uint64_t n) { return random_.below(n, drawn_++); }

 private:
  Random random_;
  uint64_t drawn_ = 0;
};

std::string listed(const std::vector<uint64_t>& numbers) {
  return fmt::format("{}", fmt::join(numbers, " "));
}

void run_curve(Sheet& sheet) {
  for (const auto& [bands, rows] : {std::pair{14, 8}, {20, 5}, {1, 3}, {7, 1}}) {
    std::string all;
    for (int i = 0; i <= 20; ++i)
      all += fmt::format("{:.9f} ", shares_a_band(i / 20.0, bands, rows));
    sheet.text(fmt::format("curve/{} x {}", bands, rows), all);
  }
}

void run_shingles(Sheet& sheet) {
  Numbers draw(sheet, "texts");
  for (int i = 0; i < 6; ++i) {
    std::string text;
    for (uint64_t n = i < 3 ? 2 + static_cast<uint64_t>(i) : 10 + draw.below(30); n > 0; --n)
      text += fmt::format("w{} ", draw.below(9));
    for (const int64_t n : {1, 4, 5})
      sheet.text(fmt::format("shingles/text {}: {} words", i, n),
                 listed(shingles(PlainWords(text), n)));
  }
}

void run_signatures(Sheet& sheet) {
  Numbers draw(sheet, "shingles");
  for (const uint64_t x :
       {kMersenne61 - 1, kMersenne61, kMersenne61 + 1, 2 * kMersenne61, UINT64_MAX})
    sheet.text(fmt::format("signature/modulo: {}", x), listed({mod_mersenne61(x)}));
  const HashFunctions functions(sheet.pick<int64_t>("functions", {24, 36}));
  for (int i = 0; i < 4; ++i) {
    std::vector<uint64_t> x;
    for (uint64_t n = 1 + draw.below(12); n > 0; --n) x.push_back(draw.any());
    sheet.text(fmt::format("signature/random: {}", i), listed(signature(x, functions)));
  }
}

void run_bands(Sheet& sheet) {
  Numbers draw(sheet, "signatures");
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 24; ++i) numbers.push_back(draw.below(1 << 20));
  std::copy_n(numbers.begin(), 6, numbers.begin() + 6);  // two bands of the same numbers
  for (const int64_t rows : {1, 2, 3, 6, 24}) {
    std::string keys;
    for (const Hash128& key : band_keys(numbers, rows)) keys += key.hex() + " ";
    sheet.text(fmt::format("bands/{} rows", rows), keys);
  }
}

/// For each document the least document of its component.
std::string least_of(Components& components, size_t size) {
  std::vector<uint64_t> least(size, size), of;
  for (uint64_t i = size; i-- > 0;) least[components.find(i)] = i;
  for (uint64_t i = 0; i < size; ++i) of.push_back(least[components.find(i)]);
  return listed(of);
}

void run_components(Sheet& sheet) {
  Numbers draw(sheet, "pairs");
  for (int i = 0; i < 4; ++i) {
    const uint64_t size = 40 + draw.below(20);
    Components components(size);
    for (uint64_t pair = 0; pair < size / 2 + 4 * static_cast<uint64_t>(i); ++pair)
      components.join(draw.below(size), draw.below(size));
    sheet.text(fmt::format("components/random: {}", i), least_of(components, size));
    std::vector<uint64_t> keys, gone;
    for (uint64_t k = 0; k < size; ++k) keys.push_back(draw.any());
    for (uint64_t k = 0; k < size; ++k) gone.push_back(draw.below(4) == 0);
    const auto is_there = [&](uint64_t k) { return gone[k] == 0; };
    std::vector<uint64_t> of = survivors(components, size, is_there,
                                         [&](uint64_t a, uint64_t b) { return keys[a] < keys[b]; });
    sheet.text(fmt::format("survivors/random: {}", i), listed(of));
  }
}

/// Chains and a star, joined in the worst order: without the two ideas the trees become lists. With
/// find() alone there are 12.5 looks for each document.
void run_steps(Sheet& sheet) {
  constexpr uint64_t kSize = 3000;
  Components components(kSize);
  for (uint64_t i = 0; i + 1 < kSize / 2; ++i) components.join(i, i + 1);
  for (uint64_t i = kSize - 1; i > kSize / 2; --i) components.join(i - 1, i);
  for (uint64_t i = 0; i < kSize / 2; ++i) components.join(0, kSize - 1 - i);
  const std::string least = least_of(components, kSize);
  sheet.text("components/chains", least);
  sheet.without_idea("steps", static_cast<int64_t>(25 * kSize / 2));
  sheet.count("steps", components.steps());
}

/// Trees of one size are joined, again and again: such a tree is as deep as can be, half of
/// log2(size) in the mean. After some questions each document should be near to the root.
void run_questions(Sheet& sheet) {
  constexpr uint64_t kSize = 4096;
  constexpr int64_t kMean = 6, kNear = 5;  // looks, for whoever walks twice
  Components components(kSize);
  for (uint64_t d = 1; d < kSize / 2; d *= 2)  // two trees
    for (uint64_t i = 0; i < kSize; i += 2 * d) components.join(i, i + d);
  sheet.text("components/deep trees", least_of(components, kSize));
  sheet.text("components/deep trees, again", least_of(components, kSize));
  const int64_t before = components.steps();
  for (uint64_t i = 0; i < kSize; ++i) components.find(i);
  sheet.without_idea("steps", (kMean + 1) * static_cast<int64_t>(kSize));
  sheet.count("steps", std::max(components.steps() - before, kNear * static_cast<int64_t>(kSize)));
}

}  // namespace

void cases(Sheet& sheet) {
  sheet.run("curve", [&] { run_curve(sheet); });
  sheet.run("shingles", [&] { run_shingles(sheet); });
  sheet.run("signatures", [&] { run_signatures(sheet); });
  sheet.run("bands", [&] { run_bands(sheet); });
  sheet.run("components", [&] { run_components(sheet); });
  sheet.run("chains", [&] { run_steps(sheet); });
  sheet.run("questions", [&] { run_questions(sheet); });
}

}  // namespace ladder::lab
