// Context parallelism in one short file: the keys of one sequence arrive in four chunks, in any
// order. A chunk gives a partial softmax; a merge joins two of them. If a tree says who merges with
// whom, the order of arrival changes no bit.
//
//   g++ -std=c++20 -ffp-contract=off chapters/20_context_parallel/toy.cpp -o toy && ./toy

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

constexpr int T = 16, kChunks = 4;  // keys of a query; chunks, one from each rank of a ring

float score(int key) { return 3 * std::sin(1.7F * static_cast<float>(key)); }
float value(int key) { return std::cos(2.3F * static_cast<float>(key)); }

/// The softmax over some keys: the largest score m, the sum l of exp(score - m), and the same sum o
/// with the values as weights. The output of attention is o / l.
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

/// Both are brought to the larger maximum, then added. Without that, exp may overflow.
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

/// As a tree: chunk 0 joins chunk 1, 2 joins 3, then the two pairs. What comes early waits for its
/// sibling; nothing waits for more than that.
Partial by_tree(const std::array<int, kChunks>& order) {
  std::map<std::array<int, 2>, Partial> waiting;  // by level and place
  for (const int c : order) {
    Partial sum = chunk(c);
    int level = 0, place = c;
    while (waiting.contains({level, place ^ 1})) {
      const Partial sibling = waiting[{level, place ^ 1}];
      sum = place % 2 == 0 ? merge(sum, sibling) : merge(sibling, sum);  // the lower one first
      ++level;
      place /= 2;
    }
    waiting[{level, place}] = sum;
  }
  return waiting[{2, 0}];
}

/// How many pairs of a query and a key before it a rank has, of T tokens in 2 P chunks.
int pairs(int first_chunk, int second_chunk) {
  const int n = T / (2 * kChunks);
  int sum = 0;
  for (const int c : {first_chunk, second_chunk})
    for (int query = c * n; query < (c + 1) * n; ++query)
      sum += query + 1;  // causal: keys 0..query
  return sum;
}

int main() {
  std::array<int, kChunks> order{0, 1, 2, 3};
  const Partial first = by_tree(order), plain = by_arrival(order);
  bool same = true;
  int differ = 0, orders = 0;
  do {
    const Partial tree = by_tree(order), arrival = by_arrival(order);
    same = same && tree.m == first.m && tree.l == first.l && tree.o == first.o;
    differ += arrival.o / arrival.l != plain.o / plain.l;
    if (orders++ % 8 == 0)
      std::printf("chunks %d %d %d %d: tree %.9f, by arrival %.9f\n", order[0], order[1], order[2],
                  order[3], tree.o / tree.l, arrival.o / arrival.l);
  } while (std::next_permutation(order.begin(), order.end()));
  std::printf("of %d orders of arrival, %d have other bits than the first\n", orders, differ);

  std::printf("\nwork of rank r of %d: chunks 2r and 2r+1, or r and 2P-1-r (zig-zag)\n", kChunks);
  bool balanced = true;
  for (int r = 0; r < kChunks; ++r) {
    std::printf("rank %d: %2d pairs, zig-zag %2d\n", r, pairs(2 * r, 2 * r + 1),
                pairs(r, 2 * kChunks - 1 - r));
    balanced = balanced && pairs(r, 2 * kChunks - 1 - r) == T * (T + 1) / 2 / kChunks;
  }
  return same && differ > 0 && balanced ? 0 : 1;
}
