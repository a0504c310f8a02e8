// A batch in pieces, and one clip, in one short file. Eight sequences have a gradient each, and 1,
// 2, 4 or 8 micro-batches add them up. A tree gives the same bits for every cut of the batch; a
// running sum does not.
//
//   g++ -std=c++20 chapters/04_clipping/toy.cpp -o toy && ./toy

#include <cmath>
#include <cstdio>
#include <vector>

constexpr int B = 8;
constexpr float gradient[B] = {1e8F, 1, 1, 1, -1e8F, 1, 1, 1};

/// The sum over sequences first to first + n - 1, as a micro-batch computes it: a tree by halves.
/// Where n is a power of two, this is the chapter's tree.
float tree(int first, int n) {
  return n == 1 ? gradient[first] : tree(first, n / 2) + tree(first + n / 2, n / 2);
}

/// Adds the sums of micro-batches, which come one after the other, in the order of the same tree.
/// Two sums of equal size join, as carries do in a binary counter: once for each 1 at the end of
/// count_ in binary. After 1, 2, 3, 4 sums there are 1, 1, 2, 1 buffers. (The chapter adds sums 1,
/// 3, 5, ... in place, so its `sum` needs no buffer.)
class Counter {
 public:
  void add(float sum) {
    for (int rest = count_++; rest % 2 == 1; rest /= 2) {
      sum = buffers_.back() + sum;  // the older one first
      buffers_.pop_back();
    }
    buffers_.push_back(sum);
  }
  float sum() const { return buffers_[0]; }  // of 1, 2, 4, 8, ... sums
  int count() const { return count_; }

 private:
  std::vector<float> buffers_;
  int count_ = 0;
};

int main() {
  bool same = true, running_differs = false;
  std::printf("The sum is 6, but near 1e8 floats lie 8 apart: 1e8 + 1 is 1e8.\n");
  std::printf("A tree is not more exact. It is the same each time.\n");
  std::printf("micro-batches   sequences in each   tree   running sum\n");
  for (int n = B; n >= 1; n /= 2) {
    Counter counter;
    float running = 0;
    for (int first = 0; first < B; first += n) {
      counter.add(tree(first, n));
      running += tree(first, n);
    }
    std::printf("%13d   %17d   %4g   %11g\n", counter.count(), n, counter.sum(), running);
    same = same && counter.sum() == tree(0, B);
    running_differs = running_differs || running != tree(0, B);
  }

  // Two tensors with a gradient each, of norms 3 and 4: together 5. At most 1 is allowed.
  const double a = 3, b = 4, most = 1;
  const double norm = std::sqrt(a * a + b * b);
  const double clipped_a = a * most / norm, clipped_b = b * most / norm;
  const double clipped_norm = std::sqrt(clipped_a * clipped_a + clipped_b * clipped_b);
  std::printf("\nclipped by the norm of all:  %g and %g, norm %g, ratio %g as before\n", clipped_a,
              clipped_b, clipped_norm, clipped_a / clipped_b);
  const double each_a = std::fmin(a, most), each_b = std::fmin(b, most);
  std::printf("clipped each by its own:     %g and %g, ratio %g: another direction\n", each_a,
              each_b, each_a / each_b);

  // A NaN in one element makes the norm NaN. Such a step is skipped. `bad > most` is false, so a
  // comparison alone would let it pass.
  const double nan = std::nan(""), bad = std::sqrt(a * a + nan * nan);
  std::printf("norm with a NaN: %g, %s\n", bad, std::isfinite(bad) ? "a step" : "no step");
  const bool direction = std::fabs(clipped_a / clipped_b - a / b) < 1e-15;
  const bool clip = direction && std::fabs(clipped_norm - most) < 1e-15 && each_a / each_b != a / b;
  return same && running_differs && clip && !std::isfinite(bad) && !(bad > most) ? 0 : 1;
}
