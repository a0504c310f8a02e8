// Why a wider layer wants a smaller rate, and how a forward multiplier becomes part of a weight.
//
//   g++ -std=c++20 chapters/34_scaling/toy.cpp -o toy && ./toy
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

/// Adam for one weight. Its first step is `rate` long, however small the gradient g is.
struct Adam {
  double m = 0, v = 0;
  int t = 0;

  double step(double g, double rate, double eps) {
    ++t;
    m = 0.9 * m + (1 - 0.9) * g;
    v = 0.95 * v + (1 - 0.95) * g * g;
    const double m_hat = m / (1 - std::pow(0.9, t)), v_hat = v / (1 - std::pow(0.95, t));
    return rate * m_hat / (std::sqrt(v_hat) + eps);
  }
};

/// A neuron adds up n inputs of 1: y = w_1 + ... + w_n. Returns how far y moves in Adam's first
/// step, if the loss wants y larger: each gradient is -1.
double moved(int n, double rate) {
  std::vector<double> w(static_cast<size_t>(n), 0.0);
  double y = 0;
  for (double& weight : w) {
    weight -= Adam().step(-1, rate, 0);
    y += weight;
  }
  return y;
}

/// y = c w x learns to be 1 from x = 3, ten steps. Folded: c is in the weight, y = w x.
/// Returns y after each step.
std::vector<double> learns(double c, bool folded, double rate, double eps) {
  const double x = 3;
  double w = folded ? c * 0.5 : 0.5;
  Adam adam;
  std::vector<double> ys;
  for (int step = 0; step < 10; ++step) {
    const double forward = folded ? 1 : c;
    const double y = forward * (w * x);
    const double g = forward * ((y - 1) * x);  // of (y - 1)^2 / 2, by w
    w -= adam.step(g, rate, eps);
    ys.push_back(forward * (w * x));
  }
  return ys;
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::printf("WRONG: %s\n", what);
  std::exit(1);
}

int main() {
  const double rate = 0.125;
  std::printf("inputs n   y moves by, at rate 1/8   at rate 1/8 * 4/n\n");
  for (const int n : {4, 16, 64, 256}) {
    const double same = moved(n, rate), scaled = moved(n, rate * 4 / n);
    std::printf("%8d   %22.3f   %17.3f\n", n, same, scaled);
    require(same == rate * n, "at one rate y moves n times as far");
    require(scaled == rate * 4, "at a rate of 4/n of it y moves as far at every width");
  }

  const double c = 1.0 / 4, eps = 0.5;  // so large that a forgotten fold of eps is seen
  const auto papers = learns(c, false, rate, eps);
  const auto folded = learns(c, true, rate * c, eps / c);
  const auto forgot = learns(c, true, rate * c, eps);
  std::printf("\nstep   y = c (w x)   y = (c w) x, rate c, eps 1/c   eps forgotten\n");
  for (const size_t step : {0, 1, 4, 9})
    std::printf("%4zu   %11.6f   %28.6f   %13.6f\n", step, papers[step], folded[step],
                forgot[step]);
  require(papers == folded, "both forms have the same bits: c is a power of two");
  require(forgot != papers, "a forgotten eps is seen");
  std::printf("\nBoth forms are equal to the last bit.\n");
}
