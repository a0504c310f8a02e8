#include "kernels/cuda/on_cpu/tensor_core.h"

#include <cstring>

namespace ladder::on_cpu {
namespace {

constexpr unsigned kAll = 0xFFFFFFFF;

struct Mma {
  const Format* format;
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};

/// Element `half` (0 or 1) of a register of two.
float element(const Format& format, uint32_t pair, int half) {
  return widen(format, pair >> (16 * half) & 0xFFFF);
}

/// Fragments lie as in the table of kernels/cuda/native/ptx.h, with g = lane / 4, t = lane % 4.
void multiply(const Lanes& lanes) {
  float A[16][16], B[16][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& part = *static_cast<const Mma*>(lanes[static_cast<size_t>(lane)]);
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r)
      for (int half = 0; half < 2; ++half)
        A[g + r % 2 * 8][2 * t + r / 2 * 8 + half] = element(*part.format, part.a[r], half);
    for (int r = 0; r < 2; ++r)
      for (int half = 0; half < 2; ++half)
        B[2 * t + r * 8 + half][g] = element(*part.format, part.b[r], half);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& part = *static_cast<const Mma*>(lanes[static_cast<size_t>(lane)]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < 16; ++k) part.d[i] += A[g + i / 2 * 8][k] * B[k][2 * t + i % 2];
  }
}

struct Load {
  uint32_t* r;
  const void* row;
  bool transposed;
};

/// Lane 8 i + j brings row j of matrix i.
uint32_t matrix_element(const Lanes& lanes, int matrix, int row, int column) {
  const auto& owner = *static_cast<const Load*>(lanes[static_cast<size_t>(8 * matrix + row)]);
  uint16_t bits;
  std::memcpy(&bits, static_cast<const std::byte*>(owner.row) + 2 * column, sizeof(bits));
  return bits;
}

void load(const Lanes& lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& part = *static_cast<const Load*>(lanes[static_cast<size_t>(lane)]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const auto at = [&](int half) {
        return part.transposed ? matrix_element(lanes, i, 2 * t + half, g)
                               : matrix_element(lanes, i, g, 2 * t + half);
      };
      part.r[i] = at(0) | at(1) << 16;
    }
  }
}

}  // namespace

void multiply_fragments(const Format& format, float* d, const uint32_t* a, const uint32_t* b,
                        Where where) {
  Mma mine{.format = &format, .d = d, .a = a, .b = b};
  meet_warp("mma", kAll, &mine, multiply, where);
}

void load_matrices(uint32_t* r, const void* row, bool transposed, Where where) {
  check_shared(row, 16, "ldmatrix from an address");
  tell(row, 16, Access::Read, reinterpret_cast<const void*>(&load_matrices));
  Load mine{.r = r, .row = row, .transposed = transposed};
  meet_warp("ldmatrix", kAll, &mine, load, where);
}

}  // namespace ladder::on_cpu
