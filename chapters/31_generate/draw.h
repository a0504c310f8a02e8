// The draw: which token comes next.
//
// The token is the argmax over tokens of  logit / temperature + Gumbel noise,  which has the same
// distribution as a draw from softmax(logits / temperature) (the Gumbel-max trick). The noise of a
// token is -log(-log u). Its u is a number of a counter-based generator, at (seed, step, line of
// the prompt, answer, position, token). So a text depends on nothing else: not on the batch, on the
// order in which texts are admitted, on its neighbors, or on a draft.
//
// Filters come first, in the order of Hugging Face's transformers: the repetition penalty, then the
// temperature, then top-k, top-p and min-p on the probabilities that the temperature has changed.
// Of equal values the token with the lower id counts as larger. So top-k keeps exactly k tokens,
// where transformers keep all that equal the last.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include "common/comm/failure.h"
#include "common/error.h"
#include "common/random.h"
#include "common/run/command_line.h"
#include "kernels/math.h"

namespace ladder {

struct DrawOptions {
  uint64_t seed = 1;
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1, min_p = 0, repetition_penalty = 1;

  void add_to(CommandLine& line) {
    line.group("31_generate: the draw");
    line.add("--seed", seed, "another seed gives other texts");
    line.add("--temperature", temperature,
             "logits are divided by it: a higher one makes texts more varied; 0: takes the most "
             "likely token");
    line.add("--top-k", top_k, "draws from the k most likely tokens only; 0: from all");
    line.add("--top-p", top_p,
             "draws from the most likely tokens only, as many as reach the probability p together");
    line.add("--min-p", min_p,
             "leaves out tokens that are less likely than p times the most likely one");
    line.add("--repetition-penalty", repetition_penalty,
             "above 1, tokens that prompt or answer have already become less likely");
  }
  /// @throws UserError
  void check() const {
    const auto require = [](bool good, const char* flag, const char* legal, double value) {
      if (!good) throw UserError("{} must be {}, not {}", flag, legal, value);
    };
    require(temperature == 0 || (temperature >= 1e-3 && temperature <= 1e6), "--temperature",
            "0, or from 0.001 to 1e6", temperature);
    require_range("--top-k", top_k, 0, int64_t{1} << 31);
    require(top_p > 0 && top_p <= 1, "--top-p", "above 0 and at most 1", top_p);
    require(min_p >= 0 && min_p <= 1, "--min-p", "from 0 to 1", min_p);
    require(repetition_penalty > 0 && repetition_penalty <= 1e6, "--repetition-penalty",
            "above 0 and at most 1e6", repetition_penalty);
  }
};

/// Which answer to which prompt, at which position: what its noise depends on.
struct DrawKey {
  int64_t line = 0, answer = 0, position = 0;
  int64_t step = 0;  ///< of a training that draws (chapter 37)
};

class Draw {
 public:
  explicit Draw(const DrawOptions& options) : o_(options) {}

  /// Called with logits / temperature and the tokens that the filters leave; not at temperature 0.
  std::function<void(std::span<const float> x, const std::vector<int32_t>& kept, const DrawKey&)>
      watch;

  /// @param logits a row, of tokens that may be drawn; it is overwritten
  /// @param text   prompt and answer so far
  /// @throws NotDone if there is none to draw
  int32_t operator()(std::span<float> logits, std::span<const int32_t> text,
                     const DrawKey& key) const {
    check_logits(logits, key);
    penalize(logits, text);
    if (o_.temperature == 0) return argmax(logits);
    for (float& x : logits) x /= static_cast<float>(o_.temperature);
    const std::vector<int32_t> kept = filtered(logits);
    if (watch) watch(logits, kept, key);
    return with_noise(logits, kept, key);
  }

  /// logits / penalty where they are positive, else times penalty, of each token of the text.
  void penalize(std::span<float> logits, std::span<const int32_t> text) const {
    if (o_.repetition_penalty == 1) return;
    const auto by = static_cast<float>(o_.repetition_penalty);
    for (const int32_t token : std::set<int32_t>(text.begin(), text.end()))
      if (float& x = logits[static_cast<size_t>(token)]; x > 0)
        x /= by;
      else
        x *= by;
  }

  /// The tokens that the filters leave, ascending. x: logits / temperature
  std::vector<int32_t> filtered(std::span<const float> x) const {
    const auto value = [&](int32_t token) { return x[static_cast<size_t>(token)]; };
    const auto before = [&](int32_t a, int32_t b) {
      return value(a) > value(b) || (value(a) == value(b) && a < b);
    };
    std::vector<int32_t> kept(x.size());
    std::iota(kept.begin(), kept.end(), 0);
    if (o_.top_k > 0 && o_.top_k < std::ssize(kept)) {
      std::nth_element(kept.begin(), kept.begin() + o_.top_k, kept.end(), before);
      kept.resize(static_cast<size_t>(o_.top_k));
      std::ranges::sort(kept);
    }
    if (o_.top_p == 1 && o_.min_p == 0) return kept;
    const double most = value(*std::ranges::min_element(kept, before));
    const auto weight = [&](int32_t token) { return math::exp(value(token) - most); };
    if (o_.top_p < 1) keep_top_p(kept, before, weight);
    std::erase_if(kept, [&](int32_t token) { return weight(token) < o_.min_p; });
    return kept;
  }

 private:
  /// A logit of -infinity is a token that is never drawn. NaN or +infinity says that weights or
  /// arithmetic are broken, and a draw from the others would hide it.
  static void check_logits(std::span<const float> logits, const DrawKey& key) {
    const auto refuse = [&](const std::string& why) {
      throw NotDone(fmt::format("line {}, answer {}, token {} (step {}): {}", key.line + 1,
                                key.answer + 1, key.position + 1, key.step, why));
    };
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    bool any = false;
    for (const float& x : logits) {
      any = any || x > -kInfinity;
      if (!(x < kInfinity))
        refuse(fmt::format("the model's logit of token {} is {}", &x - logits.data(),
                           std::isnan(x) ? "NaN" : "infinite"));
    }
    if (!any) refuse("all logits of the model are -infinity");
  }

  /// Keeps the smallest set of the most likely tokens whose probability reaches p.
  template <class Before, class Weight>
  void keep_top_p(std::vector<int32_t>& kept, Before&& before, Weight&& weight) const {
    double all = 0, sum = 0;
    for (const int32_t token : kept) all += weight(token);
    const auto behind = [&](int32_t a, int32_t b) { return before(b, a); };
    std::ranges::make_heap(kept, behind);
    auto end = kept.end();  // those taken lie behind it
    do {
      std::pop_heap(kept.begin(), end--, behind);
      sum += weight(*end);
    } while (end != kept.begin() && sum < o_.top_p * all);
    kept.erase(kept.begin(), end);
    std::ranges::sort(kept);
  }

  static int32_t argmax(std::span<const float> x) {
    return static_cast<int32_t>(std::ranges::max_element(x) - x.begin());  // the first of equals
  }

  int32_t with_noise(std::span<const float> x, const std::vector<int32_t>& kept,
                     const DrawKey& key) const {
    const Random random(o_.seed, fmt::format("generate/{}/{}/{}", key.step, key.line, key.answer));
    int32_t best = kept.front();
    double largest = -std::numeric_limits<double>::infinity();
    uint64_t pair = UINT64_MAX;  // of tokens, whose two words are drawn together
    std::array<uint64_t, 2> words{};
    for (const int32_t token : kept) {
      const auto at = static_cast<uint64_t>(token);
      if (at / 2 != pair) {
        pair = at / 2;
        words = random.bits(static_cast<uint64_t>(key.position), pair);
      }
      const uint64_t word = words[at % 2];
      // 1 - u is from 2^-53 to 1 - 2^-53, so u is never 0 or 1.
      const double rest = (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
      const double logit = x[at];
      if (logit + at_most(rest) <= largest) continue;
      const double sum = logit - math::log(-math::log(1 - rest));
      if (sum <= largest) continue;
      largest = sum;
      best = token;
    }
    return best;
  }
  /// No noise of u = 1 - rest is larger: -log u is at least rest, and rest at least its power of 2.
  static double at_most(double rest) {
    const int exponent = static_cast<int>(std::bit_cast<uint64_t>(rest) >> 52) - 1023;
    return -exponent * std::numbers::ln2 + 1e-9;
  }

  DrawOptions o_;
};

}  // namespace ladder
