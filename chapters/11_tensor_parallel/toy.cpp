// Tensor parallelism in one short file: an MLP of two matrices over 1, 2 or 4 ranks. The first is
// cut by its outputs, the second by its inputs, and one sum over ranks is all that they exchange.
//
//   g++ -std=c++20 -ffp-contract=off chapters/11_tensor_parallel/toy.cpp -o toy && ./toy

#include <array>
#include <cstdio>
#include <vector>

constexpr int C = 2, F = 8, kLeaves = 4;  // channels, hidden channels; parts of a sum over F
using Vec = std::array<float, C>;

float w1(int f, int c) { return 0.25F * static_cast<float>((f * 5 + c * 3) % 7) - 0.7F; }
float w2(int c, int f) { return 0.15F * static_cast<float>((f * 3 + c * 4) % 11) - 0.8F; }
constexpr Vec bias{0.3F, -0.2F};
float relu(float x) { return x > 0 ? x : 0; }

/// Hidden channel f. Every rank has all of x, so it computes its channels without the others.
float hidden(const Vec& x, int f) { return relu(w1(f, 0) * x[0] + w1(f, 1) * x[1]); }

/// Leaf i of the sum over hidden channels: F / kLeaves of them, added in order. Leaves do not
/// depend on the number of ranks.
Vec leaf(const Vec& x, int i) {
  Vec sum{};
  for (int f = i * F / kLeaves; f < (i + 1) * F / kLeaves; ++f)
    for (int c = 0; c < C; ++c) sum[c] += w2(c, f) * hidden(x, f);
  return sum;
}

Vec add(const Vec& a, const Vec& b) { return {a[0] + b[0], a[1] + b[1]}; }

/// A balanced tree over n sums. A rank adds its lower levels, and the all-reduce over ranks the
/// upper ones.
Vec tree(const std::vector<Vec>& sums, size_t first, size_t n) {
  if (n == 1) return sums[first];
  return add(tree(sums, first, n / 2), tree(sums, first + n / 2, n / 2));
}

/// y = W2 relu(W1 x) + bias on N ranks. @param each_adds the mistake: each rank adds the bias
Vec mlp(const Vec& x, int N, bool each_adds = false) {
  std::vector<Vec> ranks;  // what each rank brings to the all-reduce
  for (int r = 0; r < N; ++r) {
    std::vector<Vec> leaves;
    for (int i = r * kLeaves / N; i < (r + 1) * kLeaves / N; ++i) leaves.push_back(leaf(x, i));
    ranks.push_back(tree(leaves, 0, leaves.size()));
    if (each_adds) ranks[r] = add(ranks[r], bias);
  }
  const Vec sum = tree(ranks, 0, ranks.size());
  return each_adds ? sum : add(sum, bias);
}

/// The mistake to cut W1 by its inputs. Then each of two ranks has one term of every hidden
/// channel, and relu(a) + relu(b) is not relu(a + b). A sum over ranks would have to come before
/// relu.
Vec cut_by_inputs(const Vec& x) {
  Vec y = bias;
  for (int f = 0; f < F; ++f)
    for (int c = 0; c < C; ++c) y[c] += w2(c, f) * (relu(w1(f, 0) * x[0]) + relu(w1(f, 1) * x[1]));
  return y;
}

int main() {
  const Vec x{0.9F, -0.4F}, one = mlp(x, 1);
  std::printf("A rank has some rows of W1, its hidden channels, and the same columns of W2.\n");
  bool same = true;
  for (const int N : {1, 2, 4}) {
    const Vec y = mlp(x, N);
    std::printf("%d rank%s %d of %d weights each, y = %.9g %.9g\n", N,
                N == 1 ? ": " : "s:", 2 * C * F / N, 2 * C * F, y[0], y[1]);
    same = same && y == one;
  }
  const Vec twice = mlp(x, 2, true), relu_of_parts = cut_by_inputs(x);
  std::printf("each of two ranks adds the bias:  %.9g %.9g\n", twice[0], twice[1]);
  std::printf("relu before the sum of two ranks: %.9g %.9g\n", relu_of_parts[0], relu_of_parts[1]);
  return same && twice != one && relu_of_parts != one ? 0 : 1;
}
