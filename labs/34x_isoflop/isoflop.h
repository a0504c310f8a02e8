// Lab 34x: the best size of a model for a budget that nobody has spent yet, from small runs. What
// it predicts is run, too.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "common/model/layout.h"

namespace ladder::isoflop {

/// A run: N parameters in products, D tokens, and the loss at its end.
struct Trained {
  double N, D, loss;
};
/// The best N of a budget, and its loss.
struct Least {
  double N, loss;
};
/// y = k x^a
struct Power {
  double k, a;
};
/// A model that could be trained.
struct Model {
  int64_t channels;
  double N;
};
struct Foretold {
  int64_t channels;
  double loss;
};

// yours: members and functions that you add
// end of yours

/// N of a model.
inline int64_t product_parameters(const ParamLayout& layout) {
  throw std::logic_error("product_parameters is not written yet");
}

/// How many steps of `tokens` tokens a model of N takes for C operations.
inline int64_t steps_of(double C, int64_t N, int64_t tokens) {
  throw std::logic_error("steps_of is not written yet");
}

/// The best N of a budget, and its loss. There are at least three runs, of different N.
inline Least best_of(std::span<const Trained> runs) {
  throw std::logic_error("best_of is not written yet");
}

/// The power of x that fits the points best.
inline Power power_law(std::span<const double> x, std::span<const double> y) {
  throw std::logic_error("power_law is not written yet");
}

/// For a budget C that was not run: which of the models to train, and its loss.
/// @param size the law of the best N: a power of C
/// @param loss the law of the loss at that N: a power of C, too
inline Foretold foretell(Power size, Power loss, double C, std::span<const Model> models) {
  throw std::logic_error("foretell is not written yet");
}

}  // namespace ladder::isoflop
