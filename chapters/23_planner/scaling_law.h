// The best numbers of parameters N and tokens D for a budget of C = 6 N D operations.
//
//   L(N, D) = E + A / N^alpha + B / D^beta          the loss of a model with N after D tokens
//
// Where L is least for a given C, both terms fall at the same rate: alpha A / N^alpha = beta B /
// D^beta. So
//
//   N = G (C / 6)^a,  a = beta / (alpha + beta),  G = (alpha A / beta B)^(1 / (alpha + beta))
//
// The names are the usual ones. Kaplan: arXiv 2001.08361, a power of C; its N does not count the
// embedding. Chinchilla: Hoffmann et al., arXiv 2203.15556, who found the optimum in three ways.
// Two of them give a power of C through the budget of Gopher; the third fits L. Besiroglu et al.
// (arXiv 2404.10102) fitted the third again, from the same runs. Chinchilla's paper prints the
// exponents of its fit with only two digits, and the optimum is too sensitive for that: with 0.34
// and 0.28 the tokens per parameter are off by a factor of five.
//
// A model in use takes 2 N operations for each token that it reads or writes. A smaller model that
// learns from more tokens reaches the same loss, and is cheaper to use (Sardana et al., arXiv
// 2401.00448). With I tokens of inference, the goal is the least 6 N D + 2 N I at the loss of the
// optimum.
#pragma once

#include <array>
#include <string_view>

#include "kernels/math.h"

namespace ladder::planner {

struct LossLaw {
  double E, A, alpha, B, beta;

  double loss(double N, double D) const {
    return E + A / math::pow(N, alpha) + B / math::pow(D, beta);
  }
};

inline constexpr LossLaw kHoffmann{.E = 1.69, .A = 406.4, .alpha = 0.34, .B = 410.7, .beta = 0.28};
inline constexpr LossLaw kBesiroglu{
    .E = 1.8172, .A = 482.01, .alpha = 0.3478, .B = 2085.43, .beta = 0.3658};

struct Optimum {
  double parameters, tokens;

  double tokens_a_parameter() const { return tokens / parameters; }
};

inline Optimum optimum(const LossLaw& law, double flops) {
  const double sum = law.alpha + law.beta;
  const double G = math::pow(law.alpha * law.A / (law.beta * law.B), 1 / sum);
  const double N = G * math::pow(flops / 6, law.beta / sum);
  return {N, flops / (6 * N)};
}

/// Operations for the training and the use of a model.
inline double lifetime(const Optimum& at, double inference_tokens) {
  return 2 * at.parameters * (3 * at.tokens + inference_tokens);
}

/// The model that reaches the loss of optimum() and takes the fewest operations in its lifetime.
inline Optimum served(const LossLaw& law, double flops, double inference_tokens) {
  const Optimum best = optimum(law, flops);
  const double left = law.loss(best.parameters, best.tokens) - law.E;
  const auto of = [&](double log_N) {
    const double N = math::exp(log_N), data = left - law.A / math::pow(N, law.alpha);
    return Optimum{N, math::pow(law.B / data, 1 / law.beta)};
  };
  // Operations first fall, then rise with N. No smaller model reaches the loss.
  double low = math::log(law.A / left) / law.alpha, high = math::log(best.parameters);
  for (int i = 0; i < 200; ++i) {
    const double a = low + (high - low) / 3, b = high - (high - low) / 3;
    if (lifetime(of(a), inference_tokens) < lifetime(of(b), inference_tokens))
      high = b;
    else
      low = a;
  }
  return of((low + high) / 2);
}

/// A power of C that goes through one optimum.
inline constexpr double kGopher = 5.76e23, kPetaflopDay = 8.64e19;
struct PowerLaw {
  double parameters;  ///< at `flops`
  double exponent;
  double flops = kGopher;
};
inline Optimum optimum(const PowerLaw& law, double flops) {
  const double N = law.parameters * math::pow(flops / law.flops, law.exponent);
  return {N, flops / (6 * N)};
}

/// The ways to find the optimum, by name.
struct Approach {
  std::string_view name;
  Optimum at;
};

inline std::array<Approach, 5> approaches(double flops) {
  return {
      Approach{"Kaplan", optimum(PowerLaw{1.3e9, 0.73, kPetaflopDay}, flops)},
      Approach{"Chinchilla 1, least loss of each budget", optimum(PowerLaw{67e9, 0.50}, flops)},
      Approach{"Chinchilla 2, curves of equal operations", optimum(PowerLaw{63e9, 0.49}, flops)},
      Approach{"Chinchilla 3, fit of L as printed", optimum(kHoffmann, flops)},
      Approach{"Besiroglu, the fit of Chinchilla 3 again", optimum(kBesiroglu, flops)}};
}

}  // namespace ladder::planner
