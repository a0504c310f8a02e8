// A processor that counts: registers, and a cache between them and memory. A product for it is a
// list of loads, multiply-adds and stores, so what it costs follows from the code and from nothing
// else.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "kernels/check.h"

namespace ladder::lab {

enum class Matrix : uint8_t { A, B, C };

class Machine {
 public:
  static constexpr int kRegisters = 32;
  static constexpr int64_t kLine = 16;  ///< floats of a line of the cache
  static constexpr size_t kLines = 64;  ///< of the cache; the one that was used longest ago leaves

  /// @param a (M,K)
  /// @param b (N,K)
  Machine(int64_t M, int64_t N, int64_t K, std::vector<float> a, std::vector<float> b)
      : M_(M),
        N_(N),
        K_(K),
        a_(std::move(a)),
        b_(std::move(b)),
        c_(static_cast<size_t>(M * N), NAN) {}

  int64_t M() const { return M_; }
  int64_t N() const { return N_; }
  int64_t K() const { return K_; }

  /// Register r = 0.
  void zero(int r) { at(r) = 0; }
  /// Register r = an element of A (M,K), B (N,K) or C (M,N).
  void load(int r, Matrix x, int64_t row, int64_t column) { at(r) = element(x, row, column); }
  /// Register sum = the product of registers a and b, added to it, rounded once.
  void multiply_add(int sum, int a, int b) { at(sum) = std::fma(at(a), at(b), at(sum)); }
  /// An element of C = register r.
  void store(int r, int64_t row, int64_t column) { element(Matrix::C, row, column) = at(r); }

  /// Loads and stores, and lines that came from memory.
  int64_t moves() const { return moves_; }
  int64_t lines() const { return lines_; }
  std::span<const float> result() const { return c_; }

 private:
  float& at(int r) {
    CHECK(r >= 0 && r < kRegisters, "register {}; there are 0 to {}", r, kRegisters - 1);
    return registers_[static_cast<size_t>(r)];
  }

  float& element(Matrix x, int64_t row, int64_t column) {
    const int64_t rows = x == Matrix::B ? N_ : M_, columns = x == Matrix::C ? N_ : K_;
    CHECK(row >= 0 && row < rows && column >= 0 && column < columns, "element ({}, {}) of {} x {}",
          row, column, rows, columns);
    ++moves_;
    touch({x, (row * columns + column) / kLine});
    std::vector<float>& from = x == Matrix::A ? a_ : x == Matrix::B ? b_ : c_;
    return from[static_cast<size_t>(row * columns + column)];
  }

  void touch(std::pair<Matrix, int64_t> line) {
    for (auto found = cache_.begin(); found != cache_.end(); ++found) {
      if (*found != line) continue;
      cache_.splice(cache_.begin(), cache_, found);
      return;
    }
    ++lines_;
    cache_.push_front(line);
    if (cache_.size() > kLines) cache_.pop_back();
  }

  int64_t M_, N_, K_;
  std::vector<float> a_, b_, c_;
  std::array<float, kRegisters> registers_{};
  std::list<std::pair<Matrix, int64_t>> cache_;  // the line used last is first
  int64_t moves_ = 0, lines_ = 0;
};

}  // namespace ladder::lab
