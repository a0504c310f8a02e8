// ZeRO-2 in one short file: four layers of two weights on two ranks. As soon as backward has the
// gradient of a layer, each weight's sum goes to its owner, and the buffer serves the next layer.
//
//   g++ -std=c++20 -ffp-contract=off chapters/09_zero2/toy.cpp -o toy && ./toy

#include <array>
#include <cstdio>
#include <vector>

constexpr int L = 4, D = 2, N = 2, GA = 2;  // layers, weights each; ranks; micro-steps
using Layer = std::array<float, D>;
constexpr std::array<Layer, L> w{{{0.5F, 1.1F}, {0.9F, -0.7F}, {1.3F, 0.6F}, {-0.8F, 1.2F}}};

/// x_{l+1} = (w_l[0] + w_l[1] x_l) x_l / 2: an input for each layer. The sequence is b.
std::array<float, L + 1> forward(int b) {
  std::array<float, L + 1> x{0.4F + 0.3F * static_cast<float>(b)};
  for (int l = 0; l < L; ++l) x[l + 1] = (w[l][0] + w[l][1] * x[l]) * x[l] / 2;
  return x;
}

/// The gradient of layer l, and of its input over dx.
Layer backward(int l, float x, float& dx) {
  const Layer g{dx * x / 2, dx * x * x / 2};
  dx *= (w[l][0] + 2 * w[l][1] * x) / 2;
  return g;
}

/// Sums over the batch of N GA sequences on one rank: whole gradients, and a tree of two levels.
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
  int most = 0, sent = 0;      // gradients that a rank holds; numbers that it sends in a step
};

/// Micro-step k takes sequence k N + r on rank r. @param every_step false: the mistake to reduce
/// in the last micro-step alone, although the buffer has not kept the earlier ones
Result zero2(bool every_step, bool talk) {
  Result result;
  std::vector<Layer> buffer(N);  // one layer's whole gradient on each rank: all that is not sharded
  for (int k = 0; k < GA; ++k) {
    std::vector<std::array<float, L + 1>> x;
    std::vector<float> dx(N, 1);
    for (int r = 0; r < N; ++r) x.push_back(forward(k * N + r));
    for (int l = L; l-- > 0;) {
      for (int r = 0; r < N; ++r) buffer[r] = backward(l, x[r][l], dx[r]);
      result.most = L * D / N + D;  // the own shard of all layers, and the buffer
      if (!every_step && k + 1 < GA) continue;
      for (int owner = 0; owner < N; ++owner)  // reduce-scatter
        result.sum[l][owner] += buffer[0][owner] + buffer[1][owner];
      result.sent += D - D / N;
      if (talk && k == 0)
        std::printf("layer %d: rank 0 keeps the sum %9.6f, rank 1 %9.6f; the buffer is free\n", l,
                    result.sum[l][0], result.sum[l][1]);
    }
  }
  return result;
}

int main() {
  const auto one = one_rank();
  const Result two = zero2(true, true), wrong = zero2(false, false);
  std::printf("\nlayer   one rank               ZeRO-2                 last micro-step alone\n");
  for (int l = 0; l < L; ++l)
    std::printf("%5d   %9.6f %9.6f    %9.6f %9.6f    %9.6f %9.6f\n", l, one[l][0], one[l][1],
                two.sum[l][0], two.sum[l][1], wrong.sum[l][0], wrong.sum[l][1]);
  std::printf(
      "gradients held: %d whole, %d with ZeRO-2. Sent in a step: %d, that is %d micro-steps\n",
      L * D, two.most, two.sent, GA);
  std::printf("times %d; ZeRO-1 keeps whole gradients, and sends %d for any number of them.\n",
              two.sent / GA, L * D / N);
  return one == two.sum && wrong.sum != one && two.sent == GA * L * D / N ? 0 : 1;
}
