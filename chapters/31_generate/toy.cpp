// Attention of one head over a text that grows: keys and values are kept, and each new token is one
// query. It has the bits of attention over the whole window, if its sums have the same order.
//
//   g++ -std=c++20 chapters/31_generate/toy.cpp -o toy && ./toy

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

constexpr int kWindow = 8, kChannels = 3;
using Row = std::vector<float>;

struct Token {
  Row q, k, v;
};

// Numbers whose sums depend on their order.
Token token_at(int t) {
  Token token;
  int seed = 1;
  for (Row* row : {&token.q, &token.k, &token.v}) {
    seed += 11;
    for (int d = 0; d < kChannels; ++d)
      row->push_back(std::sin(static_cast<float>(seed + 7 * t + 3 * d)));
  }
  return token;
}

// A sum over keys is two sums, one of each half of `length`, which are then added. The query sees
// the first `seen` keys. A half without any of them adds nothing.
Row attend(const Row& q, const std::vector<Token>& cache, int seen, int length) {
  Row out(kChannels);
  float all = 0;
  for (int half = 0; half < 2; ++half) {
    Row sum(kChannels);
    float weights = 0;
    const int end = std::min(seen, (half + 1) * length / 2);
    for (int u = half * length / 2; u < end; ++u) {
      float score = 0;
      for (int d = 0; d < kChannels; ++d) score += q[d] * cache[u].k[d];
      weights += std::exp(score);
      for (int d = 0; d < kChannels; ++d) sum[d] += std::exp(score) * cache[u].v[d];
    }
    all += weights;
    for (int d = 0; d < kChannels; ++d) out[d] += sum[d];
  }
  for (float& x : out) x /= all;
  return out;
}

int main() {
  std::vector<Token> window;
  for (int t = 0; t < kWindow; ++t) window.push_back(token_at(t));

  std::vector<Token> cache;  // what is kept of the text so far
  bool same = true;
  int other_borders = 0, no_mask = 0;
  for (int t = 0; t < kWindow; ++t) {
    cache.push_back(token_at(t));  // only the new token is computed
    const Row whole = attend(window[t].q, window, t + 1, kWindow);
    same = same && attend(cache[t].q, cache, t + 1, kWindow) == whole;
    // Wrong: the halves of the text so far, not of the window.
    other_borders += attend(cache[t].q, cache, t + 1, t + 1) != whole;
    // Wrong: a prompt in one piece, whose tokens see each other without a mask.
    no_mask += attend(window[t].q, window, kWindow, kWindow) != whole;
  }
  std::printf("with a cache: %s\n", same ? "the same bits" : "OTHER BITS");
  std::printf("halves of the text so far: %d of %d tokens differ\n", other_borders, kWindow);
  std::printf("without a mask: %d of %d tokens differ\n", no_mask, kWindow);
  return same && other_borders > 0 && no_mask > 0 ? 0 : 1;
}
