// How many parameters N and tokens D a budget of C = 6 N D operations is best spent on.
//
//   L(N, D) = E + A / N^alpha + B / D^beta          the loss that a model of N comes to after D
//
// At the least L for a given C both terms fall alike, alpha A / N^alpha = beta B / D^beta:
//
//   N = G (C / 6)^a,  a = beta / (alpha + beta),  G = (alpha A / beta B)^(1 / (alpha + beta))
//
// Hoffmann et al. (arXiv 2203.15556) found the optimum in three ways. Two anchor a power of C at
// the budget of Gopher; the third fits L. Besiroglu et al. (arXiv 2404.10102) fitted the third
// again, from the same runs. The fit printed by Hoffmann has its exponents rounded to two digits,
// and the optimum does not forgive that: 0.34 and 0.28 put the tokens for a parameter off by five.
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

/// The budget of Gopher, and a power of C through its optimum.
inline constexpr double kGopher = 5.76e23;
struct PowerLaw {
  double parameters;  ///< at kGopher
  double exponent;
};
inline Optimum optimum(const PowerLaw& law, double flops) {
  const double N = law.parameters * math::pow(flops / kGopher, law.exponent);
  return {N, flops / (6 * N)};
}

/// The ways to find it, by name.
struct Approach {
  std::string_view name;
  Optimum at;
};

inline std::array<Approach, 4> approaches(double flops) {
  return {Approach{"Hoffmann 1, least loss of each budget", optimum(PowerLaw{67e9, 0.50}, flops)},
          Approach{"Hoffmann 2, curves of equal operations", optimum(PowerLaw{63e9, 0.49}, flops)},
          Approach{"Hoffmann 3, fit of L as printed", optimum(kHoffmann, flops)},
          Approach{"Besiroglu, the same fit again", optimum(kBesiroglu, flops)}};
}

}  // namespace ladder::planner
