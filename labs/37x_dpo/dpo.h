// Lab 37x: DPO, from log-probabilities to the weight of each token, for labels that may be wrong.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>

namespace ladder::preference {

enum class Form : uint8_t { Dpo, DpoNorm, Ipo };

struct Loss {
  Form form = Form::Dpo;
  double beta = 0.1;
  double smoothing = 0;  ///< s: how often labels are believed to be the wrong way round
};

/// A prompt and a completion of n tokens, the first `prompt` of them the prompt's. Position i of
/// n - 1 reads token i and learns token i + 1.
struct Text {
  std::span<const float> now, base;  ///< log p of what a position learns: the model's, the base's
  std::span<float> weights;          ///< of positions
  int64_t prompt = 1;
};
struct Pair {
  Text chosen, rejected;
};

/// Of a completion: log p, summed over its tokens.
struct Sums {
  double now, base;
  int64_t tokens;
};
/// A loss, and its derivative by h.
struct Term {
  double loss, slope;
};
/// The weight of each token of the two completions.
struct Weights {
  double chosen, rejected;
};

// yours: members and functions that you add
// end of yours

/// What the completion of a text has.
inline Sums completion_sums(const Text& text) {
  throw std::logic_error("completion_sums is not written yet");
}

/// h: how much more than the base the model prefers the chosen completion.
inline double margin(Form form, const Sums& chosen, const Sums& rejected) {
  throw std::logic_error("margin is not written yet");
}

/// The loss of a pair, and its slope.
inline Term term_of(const Loss& loss, double h) {
  throw std::logic_error("term_of is not written yet");
}

/// @param slope the derivative of the loss by h
inline Weights token_weights(Form form, double slope, int64_t chosen, int64_t rejected) {
  throw std::logic_error("token_weights is not written yet");
}

/// The loss of a batch. Writes the weights of all positions.
inline double weigh_pairs(const Loss& loss, std::span<const Pair> pairs) {
  throw std::logic_error("weigh_pairs is not written yet");
}

}  // namespace ladder::preference
