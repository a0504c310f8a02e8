// Recomputation in one short file: a chain of 16 layers keeps the input of every k-th layer, and
// computes the others again during backward. The gradients are equal to the last bit.
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

/// Gradients of the last output. `mistake`: a weight is updated as soon as its gradient is known,
/// and what is computed again is computed with the new weights.
Run backward(std::vector<double> w, int k, bool mistake = false) {
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
    const int first = l / k * k;  // of the segment of l
    if (!kept.contains(l)) {      // its last layer: the whole segment is computed again
      double again = kept[first];
      for (int i = first; i < l; ++i) {
        again = layer(w[i], again);
        keep(i + 1, again);
        ++run.forwards;
      }
    }
    run.dw[l] = dx * kept[l] * (1 - kept[l]);
    dx *= w[l] * (1 - 2 * kept[l]);
    kept.erase(l);
    if (mistake) w[first] += 0.01;
  }
  return run;
}

int main() {
  std::vector<double> w(L);
  for (int l = 0; l < L; ++l) w[l] = 2.5 + 0.05 * l;
  const Run all = backward(w, 1);
  bool same = true;
  std::printf("keep every   held at most   layers computed   gradient of layer 0\n");
  for (const int k : {1, 2, 4, 8, 16}) {
    const Run run = backward(w, k);
    // Of each of the L/k segments one input, and of the last segment the other k - 1.
    const size_t predicted = L / k + k - 1;
    std::printf("%10d   %12zu   %15d   %.17g\n", k, run.most, run.forwards, run.dw[0]);
    same = same && run.dw == all.dw && run.most == predicted;
  }
  const Run wrong = backward(w, 4, true);
  std::printf("4, with weights that have moved already:      %.17g\n", wrong.dw[0]);
  return same && wrong.dw != all.dw ? 0 : 1;
}
