// ZeRO-2 in one short file: four layers of two weights on two ranks. As soon as backward has the
// gradient of a layer, each weight's sum goes to its owner, and the buffer is used for the next
// layer.
//
//   g++ -std=c++20 -ffp-contract=off chapters/09_zero2/toy.cpp -o toy && ./toy

#include <array>
#include <cstdio>
#include <vector>

constexpr int L = 4, D = 2, N = 2, GA = 2;  // layers, weights of each; ranks; micro-steps
using Layer = std::array<float, D>;
constexpr std::array<Layer, L> w{{{0.5F, 1.1F}, {0.9F, -0.7F}, {1.3F, 0.6F}, {-0.8F, 1.2F}}};

/// Sequence b: x[l] is the input of layer l, and x[l + 1] = (w[l][0] + w[l][1] x[l]) x[l] / 2.
std::array<float, L + 1> forward(int b) {
  std::array<float, L + 1> x{0.4F + 0.3F * static_cast<float>(b)};
  for (int l = 0; l < L; ++l) x[l + 1] = (w[l][0] + w[l][1] * x[l]) * x[l] / 2;
  return x;
}

/// Takes dx, the gradient of layer l's output. Returns the gradient of its weights, and leaves that
/// of its input in dx.
Layer backward(int l, float x, float& dx) {
  const Layer g{dx * x / 2, dx * x * x / 2};
  dx *= (w[l][0] + 2 * w[l][1] * x) / 2;
  return g;
}

/// The batch of N GA sequences on one rank: whole gradients. Of each micro-step two sequences are
/// added first, as the two ranks do.
std::array<Layer, L> one_rank() {
  std::array<Layer, L> sum{};
  for (int k = 0; k < GA; ++k) {
    const auto a = forward(k * N), b = forward(k * N + 1);
    float da = 1, db = 1;
    for (int l = L; l-- > 0;) {
      const Layer ga = backward(l, a[l], da), gb = backward(l, b[l], db);
      for (int i = 0; i < D; ++i) sum[l][i] += ga[i] + gb[i];
    }
  }
  return sum;
}

struct Result {
  std::array<Layer, L> sum{};  // weight i of a layer is rank i's; here both side by side
  int sent = 0;                // gradients that a rank sends in a step
};

/// Micro-step k takes sequence k N + r on rank r. @param every_step false: the mistake to reduce
/// in the last micro-step only. The buffer has not kept what came earlier.
Result zero2(bool every_step, bool talk) {
  Result result;
  std::vector<Layer> buffer(N);  // of each rank: one layer's whole gradient
  for (int k = 0; k < GA; ++k) {
    std::vector<std::array<float, L + 1>> x;
    std::vector<float> dx(N, 1);
    for (int r = 0; r < N; ++r) x.push_back(forward(k * N + r));
    for (int l = L; l-- > 0;) {
      for (int r = 0; r < N; ++r) buffer[r] = backward(l, x[r][l], dx[r]);
      if (!every_step && k + 1 < GA) continue;
      for (int owner = 0; owner < N; ++owner)  // reduce-scatter
        result.sum[l][owner] += buffer[0][owner] + buffer[1][owner];
      result.sent += D - D / N;
      if (talk && k == 0)
        std::printf("micro-step 0, layer %d: rank 0 keeps %9.6f, rank 1 %9.6f; buffer free\n", l,
                    result.sum[l][0], result.sum[l][1]);
    }
  }
  return result;
}

int main() {
  const auto one = one_rank();
  const Result two = zero2(true, true), wrong = zero2(false, false);
  std::printf("\nlayer   one rank               ZeRO-2                 last micro-step only\n");
  for (int l = 0; l < L; ++l)
    std::printf("%5d   %9.6f %9.6f    %9.6f %9.6f    %9.6f %9.6f\n", l, one[l][0], one[l][1],
                two.sum[l][0], two.sum[l][1], wrong.sum[l][0], wrong.sum[l][1]);
  std::printf(
      "held by a rank: with ZeRO-1 all %d gradients; with ZeRO-2 its own %d and a buffer of %d\n",
      L * D, L * D / N, D);
  const int reduce_scatter = L * (D - D / N);  // all layers once
  std::printf(
      "gradients sent by a rank: ZeRO-1 %d, for any number of micro-steps; ZeRO-2 %d = %d x %d\n",
      reduce_scatter, two.sent, GA, reduce_scatter);
  return one == two.sum && wrong.sum != one && two.sent == GA * reduce_scatter ? 0 : 1;
}
