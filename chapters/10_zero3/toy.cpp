// ZeRO-3 (FSDP) in one short file: four layers of two weights on two ranks. Each rank holds one
// weight of each layer. A layer is gathered before it is used and let go afterwards.
//
//   g++ -std=c++20 -ffp-contract=off chapters/10_zero3/toy.cpp -o toy && ./toy

#include <array>
#include <cstdio>

constexpr int L = 4, D = 2, N = 2, kSteps = 3;  // layers, weights each; ranks, a sequence each
using Layer = std::array<float, D>;
using Model = std::array<Layer, L>;
constexpr Model start{{{0.5F, 1.1F}, {0.9F, -0.7F}, {1.3F, 0.6F}, {-0.8F, 1.2F}}};

float forward(const Layer& w, float x) { return (w[0] + w[1] * x) * x / 2; }
/// Takes dx, the gradient of the layer's output. Returns that of its weights, and leaves that of
/// its input x in dx.
Layer backward(const Layer& w, float x, float& dx) {
  const Layer g{dx * x / 2, dx * x * x / 2};
  dx *= (w[0] + 2 * w[1] * x) / 2;
  return g;
}
float input(int r, int step) { return 0.4F + 0.3F * static_cast<float>(r + step); }

/// All weights on one rank, for comparison.
Model one_rank() {
  Model w = start;
  for (int step = 0; step < kSteps; ++step) {
    std::array<std::array<float, L + 1>, N> x;
    std::array<float, N> dx{1, 1};
    for (int r = 0; r < N; ++r) {
      x[r][0] = input(r, step);
      for (int l = 0; l < L; ++l) x[r][l + 1] = forward(w[l], x[r][l]);
    }
    Model g;
    for (int l = L; l-- > 0;) {
      const Layer a = backward(w[l], x[0][l], dx[0]), b = backward(w[l], x[1][l], dx[1]);
      for (int i = 0; i < D; ++i) g[l][i] = a[i] + b[i];
    }
    for (int l = 0; l < L; ++l)
      for (int i = 0; i < D; ++i) w[l][i] -= 0.1F * g[l][i];
  }
  return w;
}

/// Two ranks. Both gather the same layer at the same time, so one buffer stands for both.
struct Fsdp {
  Model shards = start;  // weight i of each layer lies on rank i alone
  int in_buffer = -1, gathers = 0;
  Layer buffer{};  // layer `in_buffer`, the only whole one

  const Layer& unshard(int l) {
    if (in_buffer == l) return buffer;  // the last layer of forward is the first of backward
    buffer = shards[l];                 // all-gather: weight i comes from rank i
    in_buffer = l;
    ++gathers;
    return buffer;
  }
  /// @param forget false: the mistake to keep what was gathered before the update
  void train(bool forget, bool talk) {
    for (int step = 0; step < kSteps; ++step) {
      std::array<std::array<float, L + 1>, N> x;
      std::array<float, N> dx{1, 1};
      for (int r = 0; r < N; ++r) x[r][0] = input(r, step);
      for (int l = 0; l < L; ++l) {
        const Layer& w = unshard(l);
        for (int r = 0; r < N; ++r) x[r][l + 1] = forward(w, x[r][l]);
        if (talk && step == 0) std::printf("forward  of layer %d: gathers so far %d\n", l, gathers);
      }
      Model g;
      for (int l = L; l-- > 0;) {
        const Layer& w = unshard(l);
        const Layer a = backward(w, x[0][l], dx[0]), b = backward(w, x[1][l], dx[1]);
        for (int i = 0; i < D; ++i) g[l][i] = a[i] + b[i];  // reduce-scatter: rank i keeps g[l][i]
        if (talk && step == 0) std::printf("backward of layer %d: gathers so far %d\n", l, gathers);
      }
      for (int l = 0; l < L; ++l)
        for (int i = 0; i < D; ++i) shards[l][i] -= 0.1F * g[l][i];  // rank i, its own weights
      if (forget) in_buffer = -1;                                    // old now
    }
  }
};

int main() {
  const Model one = one_rank();
  Fsdp right, stale;
  right.train(true, true);
  stale.train(false, false);
  std::printf("\nlayer 1 after %d steps:   one rank %.9f %.9f\n", kSteps, one[1][0], one[1][1]);
  std::printf("                           ZeRO-3 %.9f %.9f\n", right.shards[1][0],
              right.shards[1][1]);
  std::printf("           old layer 0 in forward %.9f %.9f\n", stale.shards[1][0],
              stale.shards[1][1]);
  std::printf("weights held by a rank: %d whole, %d with ZeRO-3 (its shard and the buffer)\n",
              L * D, L * D / N + D);
  const bool count = right.gathers == kSteps * (2 * L - 1);
  return right.shards == one && stale.shards != one && count ? 0 : 1;
}
