// Seconds by their purpose: the terms of a step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/names.h"

namespace ladder::planner {

enum class Term : uint8_t {
  Products,
  Head,
  Attention,
  Kernels,
  Again,  ///< recomputation
  Tensor,
  Experts,
  Context,
  Messages,  ///< between stages
  Bubble,
  Data,  ///< between ranks that split the batch, if no computation hides it
  Update
};
constexpr auto names_of(Term) {
  return std::array{"products", "head",    "attention", "kernels", "recomputation", "tensor",
                    "experts",  "context", "messages",  "bubble",  "data",          "update"};
}
constexpr size_t kTerms = kNames<Term>.size();

/// Seconds, by term.
struct Seconds {
  std::array<double, kTerms> terms{};

  double& operator[](Term term) { return terms[static_cast<size_t>(term)]; }
  double operator[](Term term) const { return terms[static_cast<size_t>(term)]; }
  double total() const {
    double sum = 0;
    for (const double s : terms) sum += s;
    return sum;
  }
  void add(const Seconds& other, double times = 1) {
    for (size_t i = 0; i < kTerms; ++i) terms[i] += times * other.terms[i];
  }
};

/// The seconds of one micro-batch on one stage.
struct StageSeconds {
  Seconds forward, input, weight;

  double backward() const { return input.total() + weight.total(); }
  double total() const { return forward.total() + backward(); }
};

}  // namespace ladder::planner
