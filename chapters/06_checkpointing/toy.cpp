// Recomputation in one short file: a chain of 16 layers keeps the input of every k-th layer, and
// computes the others again during backward. The gradients are equal to the last bit, unless the
// weights move in between.
//
//   g++ -std=c++20 chapters/06_checkpointing/toy.cpp -o toy && ./toy

#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

constexpr int L = 16;

struct Run {
  std::vector<double> dw = std::vector<double>(L);
  size_t most = 0;   // activations held at one time
  int forwards = 0;  // layers computed, again or for the first time
};

/// Layer l: y = w x (1 - x). Backward needs x, the input that forward had.
double layer(double w, double x) { return w * x * (1 - x); }

/// Gradients of the last output. `moved` is what the weights have moved by when a segment is
/// computed again. It must be 0; anything else is the mistake to update weights before backward is
/// done. To stay short, the toy also drops the last segment, which chapter 06 keeps.
Run forward_and_backward(const std::vector<double>& w, int k, double moved = 0) {
  Run run;
  std::map<int, double> kept;  // inputs, by layer
  const auto keep = [&](int l, double x) {
    kept[l] = x;
    run.most = std::max(run.most, kept.size());
  };
  double x = 0.3;
  for (int l = 0; l < L; ++l) {
    if (l % k == 0) keep(l, x);
    x = layer(w[l], x);
    ++run.forwards;
  }
  double dx = 1;
  for (int l = L; l-- > 0;) {
    const int first = l / k * k;  // the first layer of l's segment
    if (!kept.contains(l)) {      // l is its last layer: the whole segment is computed again
      double again = kept[first];
      for (int i = first; i < l; ++i) {
        again = layer(w[i] + moved, again);
        keep(i + 1, again);
        ++run.forwards;
      }
    }
    run.dw[l] = dx * kept[l] * (1 - kept[l]);
    dx *= w[l] * (1 - 2 * kept[l]);
    kept.erase(l);
  }
  return run;
}

int main() {
  std::vector<double> w(L);
  for (int l = 0; l < L; ++l) w[l] = 2.5 + 0.8 * l / L;
  const Run all = forward_and_backward(w, 1);
  bool same = true;
  std::printf("keep every   held at most   layers computed   gradient of w[0]\n");
  for (const int k : {1, 2, 4, 8, 16}) {
    const Run run = forward_and_backward(w, k);
    // One input of each of the L/k segments, and the other k - 1 of the last segment. All but the
    // last layer of each segment are computed twice.
    const size_t held = L / k + k - 1;
    const int computed = L + L / k * (k - 1);
    std::printf("%10d   %12zu   %15d   %.17g\n", k, run.most, run.forwards, run.dw[0]);
    same = same && run.dw == all.dw && run.most == held && run.forwards == computed;
  }
  const Run wrong = forward_and_backward(w, 4, 0.01);
  std::printf("4, computed again with weights moved by 0.01:   %.17g\n", wrong.dw[0]);
  return same && wrong.dw != all.dw ? 0 : 1;
}
