#include "common/run/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/random.h"
#include "common/run/ending.h"
#include "common/run/logits.h"
#include "common/tokens/tokenizer.h"
#include "kernels/math.h"
#include "kernels/transfer.h"

namespace ladder {
namespace {

int32_t first_token(const SampleOptions& o) {
  if (o.bytes) return '\n';
  if (o.tokenizer && o.tokenizer->end_of_text)
    return static_cast<int32_t>(*o.tokenizer->end_of_text);
  return static_cast<int32_t>(o.vocab - 1);
}

}  // namespace

Sampler::Sampler(const SampleOptions& options) : options_(options), tokens_{first_token(options)} {
  CHECK(options.temperature >= 0 && options.top_k >= 0, "temperature {}, top-k {}",
        options.temperature, options.top_k);
}

int64_t Sampler::window() const { return std::min<int64_t>(std::ssize(tokens_), options_.seq_len); }

bool Sampler::next(Tensor tokens) const {
  if (std::ssize(tokens_) > options_.count || stopping()) return false;
  CHECK(tokens.shape == (Shape{1, options_.seq_len}), "tokens {}", to_string(tokens.shape));
  auto* out = tokens.data<int32_t>();
  std::fill_n(out, options_.seq_len, 0);
  std::copy(tokens_.end() - window(), tokens_.end(), out);
  return true;
}

void Sampler::choose(const Ctx& ctx, Tensor logits) {
  CHECK(logits.shape.rank == 3 && logits.dim(1) == options_.seq_len &&
            logits.dim(2) >= options_.vocab,
        "logits {}", to_string(logits.shape));
  const int64_t columns = logits.dim(2);
  const Tensor row = logits.view({logits.dim(1), columns}).slice(window() - 1, 1);
  tokens_.push_back(draw(row_of(HostCopy::of(ctx, row).tensor()).data()));
}

// Candidates, the most likely first.
std::vector<int32_t> Sampler::candidates(const float* logits) const {
  std::vector<int32_t> tokens(static_cast<size_t>(options_.vocab));
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto value = [&](int32_t token) {
    return std::isnan(logits[token]) ? -std::numeric_limits<float>::infinity() : logits[token];
  };
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](int32_t a, int32_t b) { return value(a) > value(b); });
  if (options_.top_k > 0 && options_.top_k < std::ssize(tokens))
    tokens.resize(static_cast<size_t>(options_.top_k));
  return tokens;
}

int32_t Sampler::draw(const float* logits) const {
  const std::vector<int32_t> tokens = candidates(logits);
  if (options_.temperature == 0) return tokens.front();
  std::vector<double> upto;  // cumulative weights
  double sum = 0;
  for (int32_t token : tokens) {
    const double below = double{logits[token]} - double{logits[tokens.front()]};
    const double weight = math::exp(below / options_.temperature);
    upto.push_back(sum += std::isnan(weight) ? 0 : weight);
  }
  const double u = Random(options_.seed, "sample").uniform(tokens_.size() - 1) * sum;
  const auto at = std::upper_bound(upto.begin(), upto.end(), u);  // the first with upto > u
  // If logits are not finite, there may be none.
  return at == upto.end() ? tokens.front() : tokens[static_cast<size_t>(at - upto.begin())];
}

std::string Sampler::text() const {
  if (options_.bytes) return {tokens_.begin() + 1, tokens_.end()};
  if (options_.tokenizer) {
    std::string text;  // an id that is no token has no text
    for (size_t i = 1; i < tokens_.size(); ++i)
      text += options_.tokenizer->tokens[static_cast<size_t>(tokens_[i])];
    return text;
  }
  return fmt::format("{}", fmt::join(tokens_.begin() + 1, tokens_.end(), " "));
}

}  // namespace ladder
