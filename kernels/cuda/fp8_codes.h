// Making FP8 codes: each element times a scale, saturated; on the way the largest magnitude.
//
// Tensor cores multiply FP8 along rows of both factors, so that backward needs codes transposed.
// Where a tensor has room for both copies, one kernel writes both, tile by tile: an element is read
// once.
#pragma once

#include <algorithm>
#include <bit>
#include <cuda_fp8.h>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {

/// Neighbors that a thread takes where codes are written once: 16 bytes of a 16-bit format.
constexpr int kNeighbors = 8;

/// Where the blocks of a kernel join what they met: the device's memory, all 0 between kernels.
struct Met {
  unsigned largest, blocks;
};

/// What a kernel makes codes into.
template <class Fp8>
struct Codes {
  Fp8* rows;        ///< (rows,columns)
  uint8_t* turned;  ///< (columns,rows) or null
  float scale;
  float* amax;
  Met* met;
};

/// The larger of `largest` and the magnitude of x, as bits: those of NaN are the largest of all.
__device__ inline uint32_t larger_bits(uint32_t largest, float x) {
  return std::max(largest, std::bit_cast<uint32_t>(fabsf(x)));
}

/// amax = max(amax, what all blocks met), by the block that comes last. Integers: any order will
/// do. All threads of a block call it.
__device__ inline void join_amax(float* amax, Met* met, uint32_t largest) {
  const float of_block = block_max(std::bit_cast<float>(largest));
  if (threadIdx.x > 0) return;
  atomicMax(&met->largest, std::bit_cast<uint32_t>(of_block));
  __threadfence();
  if (atomicAdd(&met->blocks, 1U) + 1 < gridDim.x * gridDim.y) return;
  __threadfence();
  const auto of_all = std::bit_cast<float>(atomicMax(&met->largest, 0U));
  *amax = Max{}(*amax, of_all);
  *met = {};
}

/// N codes, as a word where N is 4 or 8.
template <class Fp8, int N>
__device__ void make_codes(uint8_t (&codes)[N], const Floats<N>& x, float scale) {
  // From compute capability 8.9 on two codes are one instruction.
  constexpr auto kKind = std::is_same_v<Fp8, E4m3> ? __NV_E4M3 : __NV_E5M2;
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const float next = i + 1 < N ? x.at[(i + 1) % N] * scale : 0.0f;
    const uint16_t pair =
        __nv_cvt_float2_to_fp8x2(float2{x.at[i] * scale, next}, __NV_SATFINITE, kKind);
    codes[i] = static_cast<uint8_t>(pair);
    if (i + 1 < N) codes[(i + 1) % N] = static_cast<uint8_t>(pair >> 8);
  }
}

/// Codes of n elements, by threads that take W neighbors each.
template <int W, class Fp8, class Source>
__global__ void encode(Codes<Fp8> to, Source source, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = thread_index() * W; i < n; i += thread_count() * W) {
    const int64_t count = n - i;
    const Floats<W> x = source.template part<W>(i, count);
    for (int j = 0; j < W; ++j) largest = larger_bits(largest, x.at[j]);
    uint8_t codes[W];
    make_codes<Fp8>(codes, x, to.scale);
    if (W == kNeighbors && count >= W) {
      Word<kNeighbors> word;
      std::memcpy(&word, codes, W);
      *reinterpret_cast<Word<kNeighbors>*>(to.rows + i) = word;
    } else {
      for (int j = 0; j < W; ++j)
        if (j < count) to.rows[i + j].bits = codes[j];
    }
  }
  join_amax(to.amax, to.met, largest);
}

/// A block makes both copies of a tile of kTile x kTile codes, four codes a word. A thread turns
/// squares of four by four.
constexpr int kTile = 128;
constexpr int kWords = kTile / 4;

/// Byte c of row r goes to byte r of row c.
__device__ inline void turn_square(uint32_t (&x)[4]) {
  const uint32_t low_a = __byte_perm(x[0], x[1], 0x5140), high_a = __byte_perm(x[0], x[1], 0x7362);
  const uint32_t low_b = __byte_perm(x[2], x[3], 0x5140), high_b = __byte_perm(x[2], x[3], 0x7362);
  x[0] = __byte_perm(low_a, low_b, 0x5410);
  x[1] = __byte_perm(low_a, low_b, 0x7632);
  x[2] = __byte_perm(high_a, high_b, 0x5410);
  x[3] = __byte_perm(high_a, high_b, 0x7632);
}

/// Codes of (rows,columns) elements, both multiples of 4, and their transpose.
template <class Fp8, class Source>
__global__ void __launch_bounds__(kThreads)
    encode_tiles(Codes<Fp8> to, Source source, int64_t rows, int64_t columns) {
  constexpr int kWarps = kThreads / kWarp, kSquares = kWords / kWarps;
  // Word w of a column c lies at w ^ (c / 4): lanes that write one word of different columns ask
  // for different banks, and so do lanes that read the words of one column.
  __shared__ uint32_t tile[kTile][kWords];
  const int lane = lane_index(), warp = warp_index();
  const int64_t first_row = int64_t{blockIdx.x} * kTile, first_column = int64_t{blockIdx.y} * kTile;
  // From here on what is left of the matrix.
  const auto rows_left = static_cast<int>(std::min<int64_t>(rows - first_row, kTile));
  const auto columns_left = static_cast<int>(std::min<int64_t>(columns - first_column, kTile));
  const int64_t corner = first_row * columns + first_column + 4 * lane;
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kSquares; ++i) {
    const int row = 4 * (warp + i * kWarps);
    uint32_t square[4] = {};
    if (row < rows_left && 4 * lane < columns_left) {
      Floats<4> x[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) x[r] = source.template part<4>(corner + (row + r) * columns, 4);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        for (int j = 0; j < 4; ++j) largest = larger_bits(largest, x[r].at[j]);
        uint8_t codes[4];
        make_codes<Fp8>(codes, x[r], to.scale);
        std::memcpy(&square[r], codes, 4);
        *reinterpret_cast<uint32_t*>(to.rows + corner + (row + r) * columns) = square[r];
      }
    }
    turn_square(square);
#pragma unroll
    for (int c = 0; c < 4; ++c) tile[4 * lane + c][(warp + i * kWarps) ^ lane] = square[c];
  }
  __syncthreads();
  auto* turned = reinterpret_cast<uint32_t*>(to.turned + first_column * rows + first_row) + lane;
#pragma unroll
  for (int i = 0; i < kTile / kWarps; ++i) {
    const int c = warp + i * kWarps;
    if (4 * lane < rows_left && c < columns_left) turned[c * (rows / 4)] = tile[c][lane ^ (c / 4)];
  }
  join_amax(to.amax, to.met, largest);
}

/// turned (columns,rows) = the transpose of codes (rows,columns), a byte a thread: for extents that
/// no chapter's preset has.
template <class Fp8>
__global__ void turn_bytes(Codes<Fp8> to, int64_t rows, int64_t columns) {
  const int64_t i = thread_index();
  if (i < rows * columns) to.turned[i % columns * rows + i / columns] = to.rows[i].bits;
}

/// Makes codes of out's elements, which `source` has: part<W>(i, count) gives W from i on, of which
/// `count` exist. The host reads the scale when it queues the kernel, once for all threads: no
/// kernel writes it, and the host changes it between steps only.
template <int W, class Fp8, class Source>
void make_codes_of(const Ctx& ctx, const Tensor& out, const Source& source) {
  constexpr int64_t kBlocks = 1024;  // more than a GPU runs at once
  const int64_t n = out.size(), rows = out.rows(), columns = out.dim(-1);
  const Codes<Fp8> to{.rows = device_data<Fp8>(out),
                      .turned = static_cast<uint8_t*>(out.turned),
                      .scale = out.fp8->scale,
                      .amax = &out.fp8->amax,
                      .met = static_cast<Met*>(device_of(ctx).joint())};
  if (W > 1 && to.turned && rows % 4 == 0 && columns % 4 == 0)
    return launch(ctx, encode_tiles<Fp8, Source>,
                  {.x = ceil_div(rows, kTile), .y = ceil_div(columns, kTile)}, kThreads, 0, to,
                  source, rows, columns);
  launch(ctx, encode<W, Fp8, Source>, {.x = std::min(grid_over<W>(n).x, kBlocks)}, kThreads, 0, to,
         source, n);
  if (to.turned) launch(ctx, turn_bytes<Fp8>, grid_over<1>(n), kThreads, 0, to, rows, columns);
}

/// The same in the format of out.
template <int W, class Source>
void make_codes_of(const Ctx& ctx, const Tensor& out, const Source& source) {
  out.dtype == Dtype::E4M3 ? make_codes_of<W, E4m3>(ctx, out, source)
                           : make_codes_of<W, E5m2>(ctx, out, source);
}

}  // namespace ladder::LADDER_CUDA
