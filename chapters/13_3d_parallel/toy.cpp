// A mesh in one short file: eight ranks as a box of 2 x 2 x 2. Each rank has one weight of a model
// of two stages. Groups along the three axes say who sums with whom, and who sends to whom.
//
//   g++ -std=c++20 -ffp-contract=off chapters/13_3d_parallel/toy.cpp -o toy && ./toy

#include <array>
#include <cstdio>

constexpr int kRanks = 8;
enum Axis { kTensor, kData, kPipe };           // the axis that sends most comes first
constexpr std::array<int, 3> stride{1, 2, 4};  // from number 0 to number 1 along an axis
constexpr std::array<const char*, 3> name{"tensor", "data", "pipeline"};

/// Rank r's number along an axis, 0 or 1. The three numbers are its coordinate.
int at(int r, Axis axis) { return r / stride[axis] % 2; }
/// The rank that has number p in rank r's group along an axis.
int member(int r, Axis axis, int p) { return r + (p - at(r, axis)) * stride[axis]; }

// Both stages compute y = w[0] x + w[1] x^2, and each tensor rank has one of these terms. The batch
// is one number for each of the two data ranks. The loss is the sum of the last stage's outputs.
constexpr float weight[2][2] = {{0.7F, 1.9F}, {1.3F, -0.6F}};  // of stage p, tensor rank t
constexpr float batch[2] = {0.37F, 1.71F};
float power(float x, int t) { return t == 0 ? x : x * x; }  // what weight t is multiplied by
float slope(float x, int t) { return t == 0 ? 1 : 2 * x; }  // its derivative

using Numbers = std::array<float, kRanks>;  // one for each rank
/// All-reduce along an axis: each rank gets the sum over its group, the lower number first.
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
  Numbers x, y, dy, g;
  for (int r = 0; r < kRanks; ++r) {  // forward of stage 0
    x[r] = batch[at(r, kData)];
    y[r] = weight[0][at(r, kTensor)] * power(x[r], at(r, kTensor));
  }
  y = send(all_reduce(y, kTensor), 1);  // both terms; then stage 1 has y
  for (int r = 0; r < kRanks; ++r)      // backward of stage 1: the gradient of the loss is 1
    dy[r] = weight[1][at(r, kTensor)] * slope(y[r], at(r, kTensor));
  dy = send(all_reduce(dy, kTensor), 0);  // both terms; then stage 0 has dy
  for (int r = 0; r < kRanks; ++r) {
    const int t = at(r, kTensor);
    g[r] = at(r, kPipe) == 0 ? dy[r] * power(x[r], t) : power(y[r], t);
  }
  return all_reduce(g, last);  // data ranks have seen different numbers
}

int main() {
  std::printf("rank = tensor + 2 data + 4 pipeline\n");
  for (const Axis axis : {kTensor, kData, kPipe}) {
    std::printf("%-8s groups:", name[axis]);
    for (int r = 0; r < kRanks; ++r)
      if (at(r, axis) == 0) std::printf("  {%d %d}", r, member(r, axis, 1));
    std::printf("\n");
  }

  float one[2][2] = {};  // the gradients on one rank: no groups
  for (const float x : batch) {
    const float y = weight[0][0] * power(x, 0) + weight[0][1] * power(x, 1);
    const float dy = weight[1][0] * slope(y, 0) + weight[1][1] * slope(y, 1);
    for (int t = 0; t < 2; ++t) {
      one[0][t] += dy * power(x, t);
      one[1][t] += power(y, t);
    }
  }
  const Numbers mesh = gradients(kData), wrong = gradients(kPipe);
  bool same = true, differs = false;
  std::printf(
      "rank  (tensor, data, pipeline)     gradient     one rank   last sum along pipeline\n");
  for (int r = 0; r < kRanks; ++r) {
    const float right = one[at(r, kPipe)][at(r, kTensor)];
    std::printf("%4d  (%d, %d, %d)%28.7f%13.7f%26.7f\n", r, at(r, kTensor), at(r, kData),
                at(r, kPipe), mesh[r], right, wrong[r]);
    same = same && mesh[r] == right;
    differs = differs || wrong[r] != right;
  }
  return same && differs ? 0 : 1;
}
