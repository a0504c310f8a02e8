// Context parallelism in one short file: the keys of one query arrive in four chunks, in any order.
// A chunk gives a partial softmax, and a merge joins two of them. Merged along a tree, the result
// has the same bits for every order. Merged as they arrive, it does not.
//
//   g++ -std=c++20 -ffp-contract=off chapters/20_context_parallel/toy.cpp -o toy && ./toy

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

constexpr int T = 16, kChunks = 4;  // tokens; chunks of keys, one from each rank

float score(int key) { return 3 * std::sin(1.7F * static_cast<float>(key)); }
float value(int key) { return std::cos(2.3F * static_cast<float>(key)); }

/// The softmax over some keys of one query. m is the largest score, l the sum of exp(score - m),
/// and o the sum of exp(score - m) value. The output of attention is o / l.
struct Partial {
  float m = 0, l = 0, o = 0;
};

Partial chunk(int c) {
  Partial p{score(c * T / kChunks)};
  for (int i = c * T / kChunks; i < (c + 1) * T / kChunks; ++i) p.m = std::max(p.m, score(i));
  for (int i = c * T / kChunks; i < (c + 1) * T / kChunks; ++i) {
    p.l += std::exp(score(i) - p.m);
    p.o += std::exp(score(i) - p.m) * value(i);
  }
  return p;
}

/// Both are scaled to the larger maximum, then added. So no exp is above 1, and none overflows.
Partial merge(const Partial& a, const Partial& b) {
  const float m = std::max(a.m, b.m);
  const float wa = std::exp(a.m - m), wb = std::exp(b.m - m);
  return {m, a.l * wa + b.l * wb, a.o * wa + b.o * wb};
}

/// As they come: the second chunk joins the first, and so on.
Partial by_arrival(const std::array<int, kChunks>& order) {
  Partial sum = chunk(order[0]);
  for (int i = 1; i < kChunks; ++i) sum = merge(sum, chunk(order[i]));
  return sum;
}

/// As a tree: chunk 0 joins chunk 1, 2 joins 3, then the pairs. The earlier of two siblings waits.
Partial by_tree(const std::array<int, kChunks>& order) {
  std::map<std::array<int, 2>, Partial> waiting;  // by level and place
  for (const int c : order) {
    Partial sum = chunk(c);
    int level = 0, place = c;
    while (waiting.contains({level, place ^ 1})) {  // the sibling has come
      const Partial sibling = waiting[{level, place ^ 1}];
      sum = place % 2 == 0 ? merge(sum, sibling) : merge(sibling, sum);  // the lower one first
      ++level;
      place /= 2;
    }
    waiting[{level, place}] = sum;
  }
  return waiting[{2, 0}];
}

/// Causal work: the pairs of a query and a key of a rank that has two of 8 runs of the tokens.
int pairs(int run, int other_run) {
  const int n = T / (2 * kChunks);
  int sum = 0;
  for (const int i : {run, other_run})
    for (int query = i * n; query < (i + 1) * n; ++query) sum += query + 1;  // keys 0 to query
  return sum;
}

int main() {
  std::array<int, kChunks> order{0, 1, 2, 3};
  const Partial first = by_tree(order), plain = by_arrival(order);
  int tree_differs = 0, differ = 0, orders = 0;
  do {
    const Partial tree = by_tree(order), arrival = by_arrival(order);
    tree_differs += tree.m != first.m || tree.l != first.l || tree.o != first.o;
    differ += arrival.o / arrival.l != plain.o / plain.l;
    if (orders++ % 8 == 0)
      std::printf("chunks %d %d %d %d: tree %.9f, by arrival %.9f\n", order[0], order[1], order[2],
                  order[3], tree.o / tree.l, arrival.o / arrival.l);
  } while (std::next_permutation(order.begin(), order.end()));
  std::printf("merged by arrival, %d of %d orders have other bits than the first; as a tree, %d\n",
              differ, orders, tree_differs);

  std::printf(
      "\ncausal work of 4 ranks: rank r has runs 2r and 2r + 1, or r and 7 - r (zig-zag)\n");
  bool balanced = true;
  for (int r = 0; r < kChunks; ++r) {
    std::printf("rank %d: %2d pairs, zig-zag %2d\n", r, pairs(2 * r, 2 * r + 1),
                pairs(r, 2 * kChunks - 1 - r));
    balanced = balanced && pairs(r, 2 * kChunks - 1 - r) == T * (T + 1) / 2 / kChunks;
  }
  return tree_differs == 0 && differ > 0 && balanced ? 0 : 1;
}
