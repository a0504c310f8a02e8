// ZeRO-1 in one short file: eight weights on two ranks. Each rank keeps the velocity of four
// weights only, updates these, and gets the other four from the other rank.
//
//   g++ -std=c++20 -ffp-contract=off chapters/08_zero1/toy.cpp -o toy && ./toy
//
// (The flag forbids the compiler to fuse a product and a sum in one place and not in another.)

#include <array>
#include <cstdio>
#include <vector>

constexpr int D = 8, B = 2;  // weights; sequences of a step, one gradient each
constexpr float momentum = 0.9F;
using Whole = std::array<float, D>;

/// Stands for forward and backward of sequence b: some function of all weights that a rank has.
Whole gradient(const Whole& w, int b, int step) {
  Whole g;
  for (int i = 0; i < D; ++i) {
    const float x = 0.1F * static_cast<float>(i + 3 * b + step % 3);
    g[i] = (w[i] + w[(i + 1) % D] * x - 1) * x;
  }
  return g;
}

struct Rank {
  Whole w{}, g{};               // what ZeRO-1 leaves whole: weights and gradients
  std::vector<float> velocity;  // of the rank's own chunk only
};

struct Result {
  Whole w;
  size_t held;  // numbers that each rank holds: weights, gradients, velocity
  int sent;     // numbers that each rank sends in a step
};

/// @param gather false: the mistake: nobody sends the updated weights
Result train(int N, bool gather = true) {
  const int chunk = D / N;
  std::vector<Rank> ranks(N);
  for (Rank& rank : ranks) rank.velocity.resize(chunk);
  int sent = 0;
  for (int step = 0; step < 5; ++step) {
    sent = 0;
    for (int r = 0; r < N; ++r) {  // its share of the batch, added up in order
      ranks[r].g = gradient(ranks[r].w, r * B / N, step);
      for (int b = r * B / N + 1; b < (r + 1) * B / N; ++b) {
        const Whole next = gradient(ranks[r].w, b, step);
        for (int i = 0; i < D; ++i) ranks[r].g[i] += next[i];
      }
    }
    // Reduce-scatter: the owner of weight i gets its sum over all ranks, and nobody else does.
    for (int i = 0; i < D; ++i) {
      float sum = ranks[0].g[i];
      for (int from = 1; from < N; ++from) sum += ranks[from].g[i];
      ranks[i / chunk].g[i] = sum;
    }
    sent += D - chunk;
    // The owner updates it, for only the owner has the velocity of weight i.
    for (int i = 0; i < D; ++i) {
      Rank& owner = ranks[i / chunk];
      float& v = owner.velocity[i % chunk];
      v = momentum * v + owner.g[i];
      owner.w[i] -= 0.1F * v;
    }
    // All-gather: every rank gets every chunk from its owner.
    if (!gather) continue;
    for (Rank& rank : ranks)
      for (int i = 0; i < D; ++i) rank.w[i] = ranks[i / chunk].w[i];
    sent += D - chunk;
  }
  return {ranks[0].w, 2 * D + ranks[0].velocity.size(), sent};
}

void print(const char* name, const Result& result) {
  std::printf("%-22s", name);
  for (const float w : result.w) std::printf(" %.6f", w);
  std::printf("\n");
}

int main() {
  std::printf(
      "            rank 0                            rank 1\n"
      "weights     0 1 2 3 4 5 6 7                   0 1 2 3 4 5 6 7\n"
      "gradients   0 1 2 3 4 5 6 7                   0 1 2 3 4 5 6 7\n"
      "  reduce-scatter: 0 1 2 3 summed here           4 5 6 7 summed here\n"
      "velocity    0 1 2 3                           4 5 6 7\n"
      "  update: 0 1 2 3                               4 5 6 7\n"
      "  all-gather: 4 5 6 7 arrive                    0 1 2 3 arrive\n\n");
  const Result one = train(1), two = train(2), stale = train(2, false);
  print("one rank", one);
  print("two ranks, ZeRO-1", two);
  print("nobody gathers", stale);
  std::printf("numbers held by a rank: %zu on one, %zu on two; sent in a step: %d and %d\n",
              one.held, two.held, one.sent, two.sent);
  const bool counts = one.held == 3 * D && two.held == 2 * D + D / 2 && two.sent == 2 * (D / 2);
  return one.w == two.w && stale.w != one.w && counts ? 0 : 1;
}
