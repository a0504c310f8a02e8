// Hybrid sharding (HSDP) in one short file: four ranks as two shard groups of two. A shard group
// has one whole model. A layer is gathered inside it, and gradients are summed inside first and
// then across, among replicas, which are the ranks that have the same shard. Each machine has two
// ranks, so with two shard groups little crosses the slow link between machines.
//
//   g++ -std=c++20 -ffp-contract=off chapters/30_hsdp/toy.cpp -o toy && ./toy

#include <array>
#include <cstdio>
#include <vector>

constexpr int kRanks = 4, D = 8;  // ranks, with a sequence each; weights
using Whole = std::array<float, D>;

/// Stands for forward and backward of sequence b: some function of all weights.
Whole gradient(const Whole& w, int b, int step) {
  Whole g;
  for (int i = 0; i < D; ++i) {
    const float x = 0.1F * static_cast<float>((i * 3 + b * 5 + step) % 7);
    g[i] = (w[i] + w[(i + 1) % D] * x - 1) * x;
  }
  return g;
}

/// The sum of 1, 2, 4, ... numbers as a tree: neighbors join, then pairs of them.
float tree(std::vector<float> level) {
  for (; level.size() > 1; level.resize(level.size() / 2))
    for (size_t k = 0; k < level.size() / 2; ++k) level[k] = level[2 * k] + level[2 * k + 1];
  return level[0];
}

struct Result {
  Whole w{};
  int held = 0;                // weights that a rank holds
  int inside = 0, across = 0;  // numbers that it sends in a step: in its shard group, to replicas
  bool replicas_agree = true;
};

/// R shard groups of S = 4 / R ranks. Rank r has shard r % S of group r / S.
/// @param sum_replicas false: the mistake that replicas never sum
Result train(int R, bool sum_replicas = true) {
  const int S = kRanks / R, chunk = D / S;
  std::vector<std::vector<float>> shard(kRanks, std::vector<float>(chunk));
  Result result;
  result.held = chunk;
  result.inside = 2 * (S - 1) * chunk;      // all-gather and reduce-scatter of the model
  result.across = 2 * chunk * (R - 1) / R;  // all-reduce of one chunk, not of the model
  for (int step = 0; step < 4; ++step) {
    std::vector<Whole> w(kRanks), g(kRanks);
    for (int r = 0; r < kRanks; ++r) {
      for (int i = 0; i < D; ++i) w[r][i] = shard[r / S * S + i / chunk][i % chunk];  // all-gather
      g[r] = gradient(w[r], r, step);
    }
    for (int i = 0; i < D; ++i) {
      // Reduce-scatter inside: in each shard group the owner of weight i gets the sum of its ranks.
      std::vector<float> sums;
      for (int group = 0; group < R; ++group) {
        std::vector<float> gradients;
        for (int s = 0; s < S; ++s) gradients.push_back(g[group * S + s][i]);
        sums.push_back(tree(gradients));
      }
      // All-reduce across: the owners of weight i, one in each group, add the rest of the tree.
      for (int group = 0; group < R; ++group)
        shard[group * S + i / chunk][i % chunk] -= 0.1F * (sum_replicas ? tree(sums) : sums[group]);
    }
  }
  for (int i = 0; i < D; ++i) result.w[i] = shard[i / chunk][i % chunk];
  for (int r = S; r < kRanks; ++r)
    result.replicas_agree = result.replicas_agree && shard[r] == shard[r % S];
  return result;
}

int main() {
  std::printf(
      "2 x 2: ranks 0 1 | 2 3 are the shard groups; ranks 0 2 have one shard, ranks 1 3 the "
      "other.\n\n");
  std::printf("groups x shards     weights held   sent inside   sent across   weight 0\n");
  const Result one = train(1);
  bool same = true;
  for (const int R : {1, 2, 4}) {
    const Result result = train(R);
    std::printf("%d x %d   %22d   %11d   %11d   %.9f\n", R, kRanks / R, result.held, result.inside,
                result.across, result.w[0]);
    same = same && result.w == one.w && result.replicas_agree;
  }
  std::printf(
      "1 x 4 is ZeRO-3: its one shard group spans both machines, and so what it sends inside "
      "crosses\n"
      "them, too. 4 x 1 is plain data parallelism.\n");
  const Result wrong = train(2, false);
  std::printf("replicas that never sum: weight 0 is %.9f, replicas %s\n", wrong.w[0],
              wrong.replicas_agree ? "agree" : "drift apart");
  return same && wrong.w != one.w && !wrong.replicas_agree ? 0 : 1;
}
