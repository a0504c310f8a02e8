// Data parallelism in one short file: four sequences on 1, 2 or 4 ranks, whose gradients are summed
// by a ring or by halving and doubling. Ranks are a loop over arrays, a message is a copy.
//
//   g++ -std=c++20 chapters/07_ddp/toy.cpp -o toy && ./toy

#include <cstdio>
#include <vector>

constexpr int B = 4, D = 4;  // sequences; weights
// Each sequence has the same gradient for all weights. Near 1e8 floats lie 8 apart: 1e8 + 1 is 1e8.
constexpr float gradient[B] = {1e8F, 1, -1e8F, 1};

using Ranks = std::vector<std::vector<float>>;  // a buffer of D numbers for each rank

float tree(int first, int n) {
  return n == 1 ? gradient[first] : tree(first, n / 2) + tree(first + n / 2, n / 2);
}

/// Chunk c goes around and collects: it starts at rank c + 1 and is complete on rank c, which sends
/// it around once more. So each chunk adds the ranks in another order. Returns how many numbers a
/// rank sends: N - 1 chunks that still collect, then N - 1 complete ones.
int ring(Ranks& g) {
  const int N = static_cast<int>(g.size()), n = D / N;
  for (int c = 0; c < N; ++c) {
    for (int i = c * n; i < (c + 1) * n; ++i) {
      float sum = g[(c + 1) % N][i];
      for (int hop = 2; hop <= N; ++hop) sum += g[(c + hop) % N][i];
      for (std::vector<float>& rank : g) rank[i] = sum;
    }
  }
  return 2 * (N - 1) * n;
}

/// Partners at distance 1, 2, ... exchange halves of what they still hold, and add: a tree over
/// ranks, the lower rank first. Then the same way back without adding.
int halving(Ranks& g) {
  const int N = static_cast<int>(g.size());
  int sent = 0, size = D;
  std::vector<int> first(N, 0);  // rank r still sums numbers first[r] to first[r] + size - 1
  for (int distance = 1; distance < N; distance *= 2) {
    size /= 2;
    const Ranks before = g;  // both send at once
    for (int r = 0; r < N; ++r) {
      const int low = r & ~distance, high = r | distance;  // r and its partner
      if (r == high) first[r] += size;                     // the upper rank keeps the upper half
      for (int i = first[r]; i < first[r] + size; ++i) g[r][i] = before[low][i] + before[high][i];
    }
    sent += 2 * size;  // here, and on the way back
  }
  const Ranks done = g;  // the way back, all steps at once
  for (std::vector<float>& rank : g) {
    for (int r = 0; r < N; ++r)
      for (int i = first[r]; i < first[r] + size; ++i) rank[i] = done[r][i];
  }
  return sent;
}

int main() {
  bool same = true, ring_differs = false;
  std::printf(
      "The sum is 2, but near 1e8 floats lie 8 apart. One rank has %g for each of %d weights.\n",
      tree(0, B), D);
  for (const int N : {1, 2, 4}) {
    Ranks a(N), b(N);
    for (int r = 0; r < N; ++r) a[r] = b[r] = std::vector<float>(D, tree(r * B / N, B / N));
    const int sent_tree = halving(a), sent_ring = ring(b);
    std::printf("%d rank%s halving", N, N == 1 ? ": " : "s:");
    for (const float x : a[N - 1]) std::printf(" %g", x);
    std::printf(" (each sends %d)   ring", sent_tree);
    for (const float x : b[0]) std::printf(" %g", x);
    std::printf(" (%d)\n", sent_ring);
    const std::vector<float> one(D, tree(0, B));
    for (const std::vector<float>& rank : a) same = same && rank == one;
    ring_differs = ring_differs || b[0] != one;
    same = same && sent_tree == sent_ring && sent_tree == 2 * D * (N - 1) / N;
  }

  // The loss is a mean over targets. Rank 0 has three targets with gradients 1, 1, 1, rank 1 has
  // one with gradient 5. Right: the sum over the count of all targets. Wrong: the mean of two
  // means.
  const double right = (1.0 + 1 + 1) / 4 + 5.0 / 4, mean_of_means = ((1.0 + 1 + 1) / 3 + 5.0) / 2;
  std::printf("mean over all 4 targets %g, mean of the means of two ranks %g\n", right,
              mean_of_means);
  return same && ring_differs && right == 2 && mean_of_means != right ? 0 : 1;
}
