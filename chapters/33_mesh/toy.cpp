// All axes of a mesh in one short file: 32 ranks as a box of 2 x 2 x 2 x 2 x 2. Each sum of a step
// goes over one group of ranks, and a group is a slice of the box. The right groups give the
// numbers of one rank. A wrong order, a wrong group and a copy that counts twice do not.
//
//   g++ -std=c++20 -ffp-contract=off chapters/33_mesh/toy.cpp -o toy && ./toy

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

// The fastest axis first: tensor, context, shard, replica, stage.
enum Axis { t, c, s, g, p, kAxes };
constexpr const char* kNames = "tcsgp";
constexpr int kRanks = 1 << kAxes;
using Axes = std::vector<Axis>;

/// A rank's number along an axis, 0 or 1.
int at(int rank, Axis axis) { return rank >> axis & 1; }

/// The ranks that differ from `rank` along these axes alone. The first of the axes is the fastest.
std::vector<int> group(int rank, const Axes& axes) {
  std::vector<int> ranks{rank};
  for (const Axis axis : axes) {
    std::vector<int> both;
    for (const int there : {0, 1})
      for (const int r : ranks) both.push_back((r & ~(1 << axis)) | there << axis);
    ranks = both;
  }
  return ranks;
}

/// The sum of 1, 2, 4, ... numbers as a tree: neighbors join, then pairs of them.
float tree(std::vector<float> level) {
  for (; level.size() > 1; level.resize(level.size() / 2))
    for (size_t k = 0; k < level.size() / 2; ++k) level[k] = level[2 * k] + level[2 * k + 1];
  return level[0];
}

// A stage has three numbers: two that tensor ranks split, and one that both have, as a gain is.
constexpr int kGain = 2, kOfStage = 3, kNumbers = 2 * kOfStage, kBatch = 8;
/// Stands for forward and backward: what half c of the tokens of sequence b adds to gradient i.
float gradient(int i, int b, int half) {
  return std::sin(static_cast<float>(1 + i * 31 + b * 7 + half * 13)) * std::exp2f(b % 5);
}
/// Squares are added as whole numbers, so their order does not matter (chapter 08).
int64_t square(float x) { return std::llround(std::ldexp(static_cast<double>(x) * x, 30)); }

/// The gradient of number i of this rank's stage. In a step of 2 micro-steps a rank takes half of
/// the tokens of sequences 4 g + 2 k + s.
/// @param inside the axes of the sum in every micro-step. c, s is right
float mesh_gradient(int rank, int i, const Axes& inside) {
  std::vector<float> replicas;
  for (const int there : group(rank, {g})) {
    std::vector<float> steps;
    for (int k = 0; k < 2; ++k) {
      std::vector<float> sum;
      for (const int r : group(there, inside))
        sum.push_back(gradient(at(r, p) * kOfStage + i, 4 * at(r, g) + 2 * k + at(r, s), at(r, c)));
      steps.push_back(tree(sum));
    }
    replicas.push_back(tree(steps));  // once a step
  }
  return tree(replicas);
}

/// The norm, over the group along `axes`. A shard has one number or none: the owner counts it.
/// @param gain_once false: each tensor rank counts its copy of the gain
double mesh_norm(const Axes& axes, bool gain_once = true) {
  int64_t sum = 0;
  for (const int r : group(0, axes))
    for (const int i : {at(r, t), kGain}) {
      const bool owner = 2 * at(r, s) + at(r, c) == i;  // shard c + CP s, here of 4
      const bool counts = i != kGain || at(r, t) == 0 || !gain_once;
      if (owner && counts) sum += square(mesh_gradient(r, i, {c, s}));
    }
  return std::sqrt(std::ldexp(static_cast<double>(sum), -30));
}

int main() {
  std::printf("rank = t + 2 (c + 2 (s + 2 (g + 2 p))). The groups of rank 13:\n");
  for (const Axes& axes : {Axes{t}, {c}, {c, s}, {g}, {p}, {t, c, s, p}}) {
    for (const Axis axis : axes) std::printf("%c ", kNames[axis]);
    for (const int r : group(13, axes)) std::printf(" %d", r);
    std::printf("\n");
  }
  std::array<float, kNumbers> one;  // the gradients on one rank: no groups
  int64_t squares = 0;
  for (int i = 0; i < kNumbers; ++i) {
    std::vector<float> batch;
    for (int b = 0; b < kBatch; ++b) batch.push_back(gradient(i, b, 0) + gradient(i, b, 1));
    one[i] = tree(batch);
    squares += square(one[i]);
  }
  bool same = true, differs = false;
  for (int rank = 0; rank < kRanks; ++rank)
    for (const int i : {at(rank, t), kGain}) {
      const float right = one[at(rank, p) * kOfStage + i];
      same = same && mesh_gradient(rank, i, {c, s}) == right;
      differs = differs || mesh_gradient(rank, i, {s, c}) != right;
    }
  const double norm = std::sqrt(std::ldexp(static_cast<double>(squares), -30));
  const double model = mesh_norm({t, c, s, p}), all = mesh_norm({t, c, s, g, p});
  const double twice = mesh_norm({t, c, s, p}, false);
  std::printf("gradients summed over c, s, then g: %s\n", same ? "those of one rank" : "others");
  std::printf("over s, c, then g:                  %s\n", differs ? "others" : "those of one rank");
  std::printf("norm of one rank                    %.9f\n", norm);
  std::printf("over all axes but g                 %.9f\n", model);
  std::printf("over all ranks: replicas count, too %.9f\n", all);
  std::printf("each copy of a gain counts          %.9f\n", twice);
  return same && differs && model == norm && all != norm && twice != norm ? 0 : 1;
}
