// What an update reads: an element, a block, a row and a column, or the whole matrix. Then Muon on
// two ranks: an owner gets the whole matrix, as on one rank; half a matrix gives another update.
//
//   g++ -std=c++20 -ffp-contract=off chapters/32_optimizers/toy.cpp -o toy && ./toy
//
// (The flag forbids the compiler to fuse a product and a sum in one place and not in another.)

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

constexpr int R = 3, C = 4, D = R * C, Block = 3, Chunk = D / 2;  // a rank has a chunk: 6 elements
using Matrix = std::array<double, D>;                             // element (r, c) is 4 r + c
using Gram = std::array<double, R * R>;

/// Each takes gradients and gives the direction of the update.
Matrix element(const Matrix& g) {  // Lion, without momentum
  Matrix u;
  for (int i = 0; i < D; ++i) u[i] = g[i] < 0 ? -1 : 1;
  return u;
}
Matrix block(const Matrix& g) {  // 8 bits: whole multiples of a block's largest element / 127
  Matrix u;
  for (int i = 0; i < D; ++i) {
    double largest = 0;
    for (int j = i / Block * Block; j < i / Block * Block + Block; ++j)
      largest = std::max(largest, std::abs(g[j]));
    u[i] = std::round(g[i] / largest * 127) * largest / 127;
  }
  return u;
}
Matrix row_and_column(const Matrix& g) {  // Adafactor without mean(row), which reads all
  Matrix u;
  for (int i = 0; i < D; ++i) {
    double row = 0, column = 0;
    for (int c = 0; c < C; ++c) row += g[i / C * C + c] * g[i / C * C + c];
    for (int r = 0; r < R; ++r) column += g[r * C + i % C] * g[r * C + i % C];
    u[i] = g[i] / std::sqrt(row * column);
  }
  return u;
}
Matrix matrix(const Matrix& g) {  // Muon: five steps X = a X + (b A + c A A) X with A = X X^T
  double norm = 0;
  for (const double x : g) norm += x * x;
  Matrix X = g;
  for (double& x : X) x /= std::sqrt(norm);
  for (int step = 0; step < 5; ++step) {
    Gram A{}, B{};
    for (int i = 0; i < R * R; ++i)
      for (int c = 0; c < C; ++c) A[i] += X[i / R * C + c] * X[i % R * C + c];
    for (int i = 0; i < R * R; ++i) {
      for (int k = 0; k < R; ++k) B[i] += A[i / R * R + k] * A[k * R + i % R];
      B[i] = -4.7750 * A[i] + 2.0315 * B[i];
    }
    const Matrix old = X;
    for (int i = 0; i < D; ++i) {
      X[i] = 3.4445 * old[i];
      for (int k = 0; k < R; ++k) X[i] += B[i / C * R + k] * old[k * C + i % C];
    }
  }
  return X;
}

/// How many elements change the update of element 5, the second of the second row. Shows them.
int reads(const char* name, Matrix (*update)(const Matrix&), const Matrix& g) {
  int count = 0;
  std::printf("%-16s", name);
  for (int i = 0; i < D; ++i) {
    Matrix other = g;
    other[i] *= -8;  // another sign, and larger
    const bool read = update(other)[5] != update(g)[5];
    count += read;
    std::printf("%s%c", i % C ? "" : " ", read ? 'x' : '.');
  }
  std::printf("   %d of %d\n", count, D);
  return count;
}

int main() {
  const std::array<Matrix, 2> local{
      {{3, -1, 4, 1, -5, 9, 2, -6, 5, 3, -5, 8},   // of rank 0's
       {9, 7, -9, 3, 2, 3, -8, 4, 6, -2, 6, 4}}};  // and rank 1's batch
  Matrix g;
  for (int i = 0; i < D; ++i) g[i] = local[0][i] + local[1][i];
  bool good = reads("an element", element, g) == 1 && reads("a block", block, g) == Block &&
              reads("row and column", row_and_column, g) == R + C - 1 &&
              reads("a matrix", matrix, g) == D;

  const Matrix stretched = matrix({8, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0.001, 0});  // 8, 1 and 0.001
  std::printf("\nlengths 8, 1, 0.001 become %.2f, %.2f, %.2f\n\n", stretched[0], stretched[5],
              stretched[10]);

  // Reduce-scatter: each rank has the sum of its own chunk. Elsewhere it has its own summands.
  std::array<Matrix, 2> rank = local;
  for (int i = 0; i < D; ++i) rank[i / Chunk][i] = g[i];
  Matrix owner, owned, half;
  for (int i = 0; i < D; ++i) owner[i] = rank[i / Chunk][i];  // ranks send chunks to the owner,
  for (int i = 0; i < D; ++i) owned[i] = matrix(owner)[i];    // which sends chunks back
  for (int i = 0; i < D; ++i) half[i] = matrix(rank[i / Chunk])[i];  // the mistake: nobody sends
  for (const auto& [name, u] :
       {std::pair{"one rank", matrix(g)}, {"an owner", owned}, {"half a matrix", half}}) {
    std::printf("%-14s", name);
    for (const double x : u) std::printf(" %5.2f", x);
    std::printf("\n");
  }
  good = good && owned == matrix(g) && half != matrix(g);
  return good ? 0 : 1;
}
