#include "kernels/cuda/on_cpu/warpgroup.h"

#include <cstring>

#include "kernels/narrow.h"

namespace ladder::on_cpu {
namespace {

constexpr unsigned kAll = 0xFFFFFFFF;
constexpr int kPiece = 16;  // bytes

/// The eight elements of a piece of a factor: of row `row`, `piece` pieces after the factor's first
/// byte. The hardware swaps bits 4 to 6 of an address with bits 7 to 9.
void read_piece(float* to, uint32_t factor, int row, int piece) {
  const uint32_t straight = (factor << 4) + static_cast<uint32_t>(row * 128 + piece * kPiece);
  const auto* from =
      static_cast<const std::byte*>(dynamic_shared_memory()) + (straight ^ (straight >> 3 & 0x70));
  check_shared(from, kPiece, "wgmma from an address");
  tell(from, kPiece, Access::Read, nullptr);
  uint16_t bits[8];
  std::memcpy(bits, from, sizeof(bits));
  for (int i = 0; i < 8; ++i) to[i] = widen(kBf16, bits[i]);
}

/// A warp's 16 rows of A. Registers hold it as the table of kernels/cuda/native/ptx.h says.
void read_left(float (&A)[16][16], const Product& of_lane, int lane, int warp) {
  const int g = lane / 4, t = lane % 4;
  if (of_lane.from_registers) {
    for (int r = 0; r < 4; ++r)
      for (int half = 0; half < 2; ++half)
        A[g + r % 2 * 8][2 * t + r / 2 * 8 + half] =
            widen(kBf16, of_lane.left[static_cast<size_t>(r)] >> (16 * half) & 0xFFFF);
  } else {
    const int row = lane / 2, piece = lane % 2;
    read_piece(&A[row][8 * piece], of_lane.a, 16 * (warp % 4) + row, piece);
  }
}

/// B, its columns as rows.
void read_right(float (&B)[64][16], const Product& product) {
  for (int i = 0; i < 128; ++i)
    if (product.from_registers) {
      float row[8];  // of a row k, columns from n on
      const int k = i / 8, n = i % 8 * 8;
      read_piece(row, product.b, k, n / 8);
      for (int j = 0; j < 8; ++j) B[n + j][k] = row[j];
    } else {
      read_piece(&B[i / 2][i % 2 * 8], product.b, i / 2, i % 2);
    }
}

/// The same product of all lanes of a warp. Sums ascend in k; a GPU adds in an order of its own.
void compute(const std::array<const Product*, kLanes>& lanes) {
  float A[16][16], B[64][16];
  const int warp = running_thread() / kLanes;
  for (int lane = 0; lane < kLanes; ++lane)
    read_left(A, *lanes[static_cast<size_t>(lane)], lane, warp);
  read_right(B, *lanes[0]);
  for (int lane = 0; lane < kLanes; ++lane) {
    const Product& mine = *lanes[static_cast<size_t>(lane)];
    const int g = lane / 4, t = lane % 4;
    for (int n = 0; n < 8; ++n)
      for (int i = 0; i < 4; ++i) {
        float sum = mine.add ? mine.d[n][i] : 0;
        for (int k = 0; k < 16; ++k) sum += A[g + i / 2 * 8][k] * B[8 * n + 2 * t + i % 2][k];
        mine.d[n][i] = sum;
      }
  }
}

/// Computes the products of a warp whose group is before `group`.
void compute_before(int group) {
  const int first = running_thread() - lane_of_thread();
  const auto& mine = products_of(first).started;
  size_t done = 0;
  for (; done < mine.size() && mine[done].group < group; ++done) {
    std::array<const Product*, kLanes> lanes{};
    for (int lane = 0; lane < kLanes; ++lane)
      lanes[static_cast<size_t>(lane)] = &products_of(first + lane).started.at(done);
    compute(lanes);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    auto& started = products_of(first + lane).started;
    started.erase(started.begin(), started.begin() + static_cast<std::ptrdiff_t>(done));
  }
}

}  // namespace

uint32_t factor_at(const void* first) {
  check_shared(first, kPiece, "a factor of wgmma");
  return static_cast<uint32_t>(shared_offset(first)) / kPiece;
}

void start_product(const Product& mine, Where where) {
  Products& products = products_of(running_thread());
  products.started.push_back(mine);
  products.started.back().group = products.open_group;
  // All products of a warp so far, so that their order stays.
  int nothing = 0;
  meet_warp(
      "wgmma", kAll, &nothing,
      [](const Lanes&) {
        if (draw_below(2) == 0) compute_before(products_of(running_thread()).open_group + 1);
      },
      where);
}

void close_product_group() { ++products_of(running_thread()).open_group; }

void finish_products(int pending_groups, Where where) {
  int before = products_of(running_thread()).open_group - pending_groups;
  meet_warp(
      "a wait for wgmma", kAll, &before,
      [](const Lanes& lanes) { compute_before(*static_cast<const int*>(lanes[0])); }, where);
}

}  // namespace ladder::on_cpu
