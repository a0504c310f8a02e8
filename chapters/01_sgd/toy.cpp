// Backward by hand in one short file: a network of two layers, its loss, the gradient of every
// weight, and five steps of SGD. Finite differences of the loss check the gradients. A gradient
// without the slope of tanh fails this check, although SGD learns with it, too.
//
//   g++ -std=c++20 chapters/01_sgd/toy.cpp -o toy && ./toy

#include <array>
#include <cmath>
#include <cstdio>

constexpr int I = 2, H = 3, V = 3;  // inputs, hidden channels, classes
constexpr double x[I] = {1, -0.5};  // one example
constexpr int target = 2;           // its class

/// All weights in one array, and so are their gradients: first W1 (H,I), then W2 (V,H).
using Weights = std::array<double, H * I + V * H>;
constexpr int w1(int i, int j) { return i * I + j; }          // where W1[i][j] lies
constexpr int w2(int v, int i) { return H * I + v * H + i; }  // where W2[v][i] lies

struct Acts {  // activations: what forward leaves for backward
  double h[H], p[V];
};

/// h = tanh(W1 x), z = W2 h, p = softmax(z); the loss is -log p[target].
double forward(const Weights& w, Acts& a) {
  double sum = 0;
  for (int i = 0; i < H; ++i) a.h[i] = std::tanh(w[w1(i, 0)] * x[0] + w[w1(i, 1)] * x[1]);
  for (int v = 0; v < V; ++v) {
    double z = 0;
    for (int i = 0; i < H; ++i) z += w[w2(v, i)] * a.h[i];
    a.p[v] = std::exp(z);
    sum += a.p[v];
  }
  for (double& p : a.p) p /= sum;
  return -std::log(a.p[target]);
}

/// The chain rule from the loss back to each weight. `mistake` leaves out the slope of tanh.
Weights backward(const Weights& w, const Acts& a, bool mistake = false) {
  Weights d;  // every element is written below
  double dz[V], dh[H] = {};
  for (int v = 0; v < V; ++v) dz[v] = a.p[v] - (v == target);  // of -log(softmax(z)[target])
  for (int v = 0; v < V; ++v) {
    for (int i = 0; i < H; ++i) {
      d[w2(v, i)] = dz[v] * a.h[i];  // gradient of the output times the input
      dh[i] += w[w2(v, i)] * dz[v];  // channel i reaches the loss through every z[v]
    }
  }
  for (int i = 0; i < H; ++i) {
    const double slope = mistake ? 1 : 1 - a.h[i] * a.h[i];  // of tanh
    for (int j = 0; j < I; ++j) d[w1(i, j)] = dh[i] * slope * x[j];
  }
  return d;
}

/// The largest difference between `d` and (loss(w + e) - loss(w - e)) / 2e, over all weights.
double error(const Weights& w, const Weights& d, double e) {
  double worst = 0;
  for (size_t k = 0; k < w.size(); ++k) {
    Acts a;
    Weights up = w, down = w;
    up[k] += e;
    down[k] -= e;
    const double difference = (forward(up, a) - forward(down, a)) / (2 * e);
    worst = std::fmax(worst, std::fabs(difference - d[k]));
  }
  return worst;
}

int main() {
  Weights w{0.1, -0.2, 0.3, 0.1, -0.1, 0.2, 0.2, 0.1, -0.1, -0.3, 0.2, 0.1, 0.1, -0.1, 0.2};
  Acts a;
  std::printf("first loss %.4f; a model that knows nothing has ln 3 = %.4f\n", forward(w, a),
              std::log(3.0));

  // A difference is off by f''' e^2 / 6 and by rounding, about 2^-53 / e = 1e-12. The third
  // derivative f''' is at most 0.3 here, so e^2 = 1e-8 is a generous bound.
  const double e = 1e-4, bound = e * e;
  const double right = error(w, backward(w, a), e), wrong = error(w, backward(w, a, true), e);
  std::printf("largest error of a gradient: %.1e; without the slope of tanh: %.1e\n", right, wrong);

  bool falls = true;
  for (int step = 1; step <= 5; ++step) {
    const double before = forward(w, a);
    const Weights d = backward(w, a);  // all gradients come before the first weight moves
    for (size_t k = 0; k < w.size(); ++k) w[k] -= 0.5 * d[k];
    const double loss = forward(w, a);
    std::printf("step %d: loss %.4f, probability of the target %.3f\n", step, loss, a.p[target]);
    falls = falls && loss < before;
  }
  return right < bound && wrong > bound && falls ? 0 : 1;
}
