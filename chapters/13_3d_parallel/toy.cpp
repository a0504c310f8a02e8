// A mesh in one short file: eight ranks as a box of 2 x 2 x 2. Each rank computes with its own part
// of a model of two stages; groups along the three axes say who sums with whom.
//
//   g++ -std=c++20 -ffp-contract=off chapters/13_3d_parallel/toy.cpp -o toy && ./toy

#include <array>
#include <cstdio>

constexpr int kRanks = 8;
enum Axis { kTensor, kPipe, kData };           // the fastest link first
constexpr std::array<int, 3> stride{1, 2, 4};  // between neighbors along an axis
constexpr std::array<const char*, 3> name{"tensor", "pipeline", "data"};

/// Which place rank r has along an axis, and the rank at place p of its group.
int at(int r, Axis axis) { return r / stride[axis] % 2; }
int member(int r, Axis axis, int p) { return r + (p - at(r, axis)) * stride[axis]; }

// The model: stage 0 makes y = a0 x + a1 x, stage 1 makes z = b0 y + b1 y, and each tensor rank has
// one of a stage's two weights. A batch of two numbers for two data ranks; the loss is the sum of
// z.
constexpr float weight[2][2] = {{0.7F, 1.9F}, {1.3F, -0.6F}};  // of stage p, tensor rank t
constexpr float batch[2] = {0.37F, 1.71F};

using Numbers = std::array<float, kRanks>;  // one for each rank
/// All-reduce along an axis: each rank gets the sum over its group, the lower place first.
Numbers all_reduce(const Numbers& x, Axis axis) {
  Numbers sum;
  for (int r = 0; r < kRanks; ++r) sum[r] = x[member(r, axis, 0)] + x[member(r, axis, 1)];
  return sum;
}
/// A message along the pipeline: stage `to` gets what the other stage has.
Numbers send(const Numbers& x, int to) {
  Numbers got = x;
  for (int r = 0; r < kRanks; ++r)
    if (at(r, kPipe) == to) got[r] = x[member(r, kPipe, 1 - to)];
  return got;
}

/// The gradient of each rank's weight. @param last the axis of the last sum; kData is right
Numbers gradients(Axis last) {
  Numbers x, y, dz, dy, g;
  for (int r = 0; r < kRanks; ++r) {
    x[r] = batch[at(r, kData)];
    y[r] = weight[0][at(r, kTensor)] * x[r];
    dz[r] = 1;  // of the loss
    dy[r] = weight[1][at(r, kTensor)] * dz[r];
  }
  y = all_reduce(y, kTensor);    // forward of stage 0: both tensor ranks have all of y
  dy = all_reduce(dy, kTensor);  // backward of stage 1
  y = send(y, 1);                // stage 1 reads y,
  dy = send(dy, 0);              // and stage 0 gets its gradient
  for (int r = 0; r < kRanks; ++r) g[r] = at(r, kPipe) == 0 ? dy[r] * x[r] : dz[r] * y[r];
  return all_reduce(g, last);  // data ranks have seen different numbers
}

int main() {
  std::printf("rank = tensor + 2 pipeline + 4 data\n");
  for (const Axis axis : {kTensor, kPipe, kData}) {
    std::printf("%-8s groups:", name[axis]);
    for (int r = 0; r < kRanks; ++r)
      if (at(r, axis) == 0) std::printf("  {%d %d}", r, member(r, axis, 1));
    std::printf("\n");
  }

  // One rank: the same sums, without groups.
  float one[2][2];
  const float b = weight[1][0] + weight[1][1];
  for (int t = 0; t < 2; ++t) {
    one[0][t] = b * batch[0] + b * batch[1];
    one[1][t] = (weight[0][0] * batch[0] + weight[0][1] * batch[0]) +
                (weight[0][0] * batch[1] + weight[0][1] * batch[1]);
  }
  const Numbers mesh = gradients(kData), wrong = gradients(kPipe);
  bool same = true, differs = false;
  std::printf(
      "rank  (tensor, pipeline, data)   gradient     one rank     summed along the pipeline\n");
  for (int r = 0; r < kRanks; ++r) {
    const float right = one[at(r, kPipe)][at(r, kTensor)];
    std::printf("%4d  (%d, %d, %d)   %23.9g  %11.9g  %11.9g\n", r, at(r, kTensor), at(r, kPipe),
                at(r, kData), mesh[r], right, wrong[r]);
    same = same && mesh[r] == right;
    differs = differs || wrong[r] != right;
  }
  return same && differs ? 0 : 1;
}
