// A mixture of experts in one short file: six tokens, four experts, three of them for each token.
// Rows are sorted by expert, computed, and brought back. A plain loop over tokens says what is
// right, and the order in which a token adds its experts decides the last bit.
//
//   g++ -std=c++20 -ffp-contract=off chapters/21_moe/toy.cpp -o toy && ./toy

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

constexpr int T = 6, E = 4, K = 3;  // tokens; experts; experts of a token
constexpr float x[T] = {0.9F, -1.3F, 0.4F, 2.1F, -0.6F, 1.2F};

float logit(int t, int e) { return std::sin(3 * x[t] + 1.9F * static_cast<float>(e)); }
float expert(int e, float input) { return std::sin(2.7F * static_cast<float>(e) + input) * 3.1F; }

/// The experts of token t in ascending order: the K largest logits. Their weights are the softmax
/// over these K logits.
struct Route {
  std::array<int, K> expert{};
  std::array<float, K> weight{};
};
Route route(int t) {
  std::array<bool, E> chosen{};
  for (int k = 0; k < K; ++k) {
    int best = -1;
    for (int e = 0; e < E; ++e)
      if (!chosen[e] && (best < 0 || logit(t, e) > logit(t, best))) best = e;
    chosen[best] = true;
  }
  Route r;
  float sum = 0;
  for (int e = 0, k = 0; e < E; ++e) {
    if (!chosen[e]) continue;
    r.expert[k] = e;
    r.weight[k] = std::exp(logit(t, e));
    sum += r.weight[k];
    ++k;
  }
  for (float& w : r.weight) w /= sum;
  return r;
}

int main() {
  // What is right: token by token, experts in ascending order.
  std::array<float, T> right{};
  for (int t = 0; t < T; ++t) {
    const Route r = route(t);
    for (int k = 0; k < K; ++k) right[t] += r.weight[k] * expert(r.expert[k], x[t]);
  }

  // 1. Counts: how many rows each expert gets, and where its first row lies.
  std::array<int, E> count{};
  for (int t = 0; t < T; ++t)
    for (const int e : route(t).expert) ++count[e];
  std::array<int, E + 1> first{};
  for (int e = 0; e < E; ++e) {
    first[e + 1] = first[e] + count[e];
    std::printf("expert %d: %d rows from row %d on\n", e, count[e], first[e]);
  }

  // 2. There: rows sorted by expert, so that the rows of an expert are neighbors.
  std::vector<float> rows(T * K), weight(T * K);
  std::vector<int> token(T * K);
  std::array<int, E + 1> next = first;
  for (int t = 0; t < T; ++t) {
    const Route r = route(t);
    for (int k = 0; k < K; ++k) {
      const int row = next[r.expert[k]]++;
      rows[row] = x[t];
      weight[row] = r.weight[k];
      token[row] = t;
    }
  }
  for (int e = 0; e < E; ++e)
    for (int row = first[e]; row < first[e + 1]; ++row) rows[row] = expert(e, rows[row]);

  // 3. Back: each row is added to its token. Rows are sorted by expert, so a token adds its experts
  // in ascending order, as the plain loop does.
  std::array<float, T> back{}, descending{}, misplaced{};
  for (int row = 0; row < T * K; ++row) back[token[row]] += weight[row] * rows[row];
  // Two mistakes: another order of the sum, and rows taken as if they lay token by token.
  for (int row = T * K; row-- > 0;) descending[token[row]] += weight[row] * rows[row];
  for (int row = 0; row < T * K; ++row) misplaced[row / K] += weight[row] * rows[row];
  std::printf("\ntoken   plain loop     there and back   experts descending   rows misplaced\n");
  for (int t = 0; t < T; ++t)
    std::printf("%5d   %-12.9f   %-14.9f   %-18.9f   %.9f\n", t, right[t], back[t], descending[t],
                misplaced[t]);

  // Loads are uneven, and all wait for the busiest expert.
  const int most = *std::max_element(count.begin(), count.end());
  std::printf("\nthe busiest expert has %d rows, %.2f times the mean of %.1f\n", most,
              most * E / (1.0 * T * K), 1.0 * T * K / E);
  return back == right && descending != right && misplaced != right ? 0 : 1;
}
