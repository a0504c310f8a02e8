// Expert parallelism in one short file: eight experts over 1, 2 or 4 ranks, which have two to eight
// tokens each. Rows travel to the ranks of their experts and back. A tree over experts says in
// which order a token adds what comes back, so that no layout changes a bit.
//
//   g++ -std=c++20 -ffp-contract=off chapters/22_expert_parallel/toy.cpp -o toy && ./toy

#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

constexpr int T = 8, E = 8, K = 3;  // tokens; experts; experts of a token
constexpr int chosen[T][K] = {{0, 1, 5}, {0, 2, 3}, {1, 4, 6}, {4, 5, 7},
                              {0, 2, 6}, {0, 3, 7}, {0, 5, 6}, {1, 2, 7}};

/// Expert e's output for token t (any function of both); nothing if t has not chosen e.
std::optional<float> output(int t, int e) {
  for (const int one : chosen[t])
    if (one == e) return 2.9F * std::sin(1.3F * static_cast<float>(e) + static_cast<float>(t));
  return {};
}

/// The sum of two parts of the tree. If one of them has nothing, it is the other.
std::optional<float> join(std::optional<float> low, std::optional<float> high) {
  if (!low || !high) return low ? low : high;
  return *low + *high;
}

using Sums = std::vector<std::optional<float>>;
/// Adds n of these sums, from `first` on, as a balanced tree.
std::optional<float> tree(const Sums& sums, int first, int n) {
  if (n == 1) return sums[first];
  return join(tree(sums, first, n / 2), tree(sums, first + n / 2, n / 2));
}

struct Result {
  std::array<float, T> y{};
  int rows = 0;           // that go to another rank; as many come back
  std::vector<int> load;  // outputs that each rank computes
};

/// N ranks. Rank r has tokens r T/N on and experts r E/N on. @param arrival the mistake: adds in
/// the order in which ranks happen to answer, here the last rank first
Result layer(int N, bool arrival = false) {
  Result result;
  result.load.resize(N);
  for (int t = 0; t < T; ++t) {
    const int home = t / (T / N);
    Sums from(N);  // what the ranks send back for this token
    for (int rank = 0; rank < N; ++rank) {
      Sums outputs(E / N);
      int count = 0;
      for (int i = 0; i < E / N; ++i) {
        outputs[i] = output(t, rank * E / N + i);
        count += outputs[i].has_value();
      }
      // The token travels once, however many experts of that rank it has. The rank adds their
      // outputs by its own part of the tree, and one row comes back.
      from[rank] = tree(outputs, 0, E / N);
      result.load[rank] += count;
      result.rows += rank != home && count > 0;
    }
    std::optional<float> late;
    for (int rank = N; rank-- > 0;) late = join(late, from[rank]);
    result.y[t] = arrival ? *late : *tree(from, 0, N);
  }
  return result;
}

int main() {
  const Result one = layer(1), wrong = layer(4, true);
  bool same = true;
  for (const int N : {1, 2, 4}) {
    const Result result = layer(N);
    std::printf("%d rank%s %2d rows there and %2d back; outputs by rank:", N,
                N == 1 ? ": " : "s:", result.rows, result.rows);
    for (const int n : result.load) std::printf(" %d", n);
    std::printf("\n");
    same = same && result.y == one.y;
  }
  // If an expert's rank did not add, each output would come back by itself.
  int each = 0;
  for (int t = 0; t < T; ++t)
    for (const int e : chosen[t]) each += e / (E / 4) != t / (T / 4);
  std::printf("on 4 ranks %d rows would come back if each output had one\n", each);

  std::printf("\ntoken   one rank       four ranks     as ranks answer\n");
  const Result four = layer(4);
  for (int t = 0; t < T; ++t)
    std::printf("%5d   %-12.9f   %-12.9f   %.9f\n", t, one.y[t], four.y[t], wrong.y[t]);
  // Two terms have one sum in any order. Only a token with experts on three ranks can show the
  // mistake.
  return same && wrong.y != one.y && four.rows < each ? 0 : 1;
}
