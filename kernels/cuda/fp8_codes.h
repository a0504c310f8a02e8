// Makes FP8 codes: each element times a scale, saturated. It also finds the largest magnitude.
//
// Tensor cores multiply FP8 along rows of both factors, so backward needs transposed codes. If a
// tensor has room for both copies, one kernel writes both, tile by tile. So it reads each element
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

/// What the blocks of a kernel have met so far. It lies in the device's memory, and is 0 between
/// kernels.
struct Met {
  unsigned largest;  ///< the largest magnitude, as bits
  unsigned blocks;   ///< how many blocks have added theirs
};

/// Where a kernel writes codes, and how it makes them.
template <class Fp8>
struct Codes {
  Fp8* rows;            ///< (rows,columns)
  uint8_t* transposed;  ///< (columns,rows) or null
  float scale;
  float* amax;
  Met* met;
};

/// The larger of `largest` and the magnitude of x, as bits. NaN has the largest bits of all.
__device__ inline uint32_t larger_bits(uint32_t largest, float x) {
  return std::max(largest, std::bit_cast<uint32_t>(fabsf(x)));
}

/// amax = max(amax, what all blocks met). The block that comes last writes it. The maximum of
/// integers is the same in any order. All threads of a block call it.
__device__ inline void join_amax(float* amax, Met* met, uint32_t largest) {
  const float of_block = block_max(std::bit_cast<float>(largest));
  if (threadIdx.x > 0) return;
  atomicMax(&met->largest, std::bit_cast<uint32_t>(of_block));
  __threadfence();  // the magnitude is there before the block counts
  if (atomicAdd(&met->blocks, 1U) + 1 < gridDim.x * gridDim.y) return;
  __threadfence();  // the last block sees the magnitudes of all
  const auto of_all = std::bit_cast<float>(atomicMax(&met->largest, 0U));
  *amax = Max{}(*amax, of_all);
  *met = {};
}

/// The codes of N elements.
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

/// A block makes both copies of a tile of kTile x kTile codes, four codes a word. A thread
/// transposes squares of four by four codes.
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

/// Makes codes of (rows,columns) elements, and their transpose. Both extents are multiples of 4.
template <class Fp8, class Source>
__global__ void __launch_bounds__(kThreads)
    encode_tiles(Codes<Fp8> to, Source source, int64_t rows, int64_t columns) {
  constexpr int kWarps = kThreads / kWarp, kSquares = kWords / kWarps;
  // Word w of column c lies at w ^ (c / 4). So lanes that write one word of different columns ask
  // for different banks. So do lanes that read the words of one column.
  __shared__ uint32_t tile[kTile][kWords];
  const int lane = lane_index(), warp = warp_index();
  const int64_t first_row = int64_t{blockIdx.x} * kTile, first_column = int64_t{blockIdx.y} * kTile;
  // Rows and columns from the tile's corner to the end of the matrix.
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
  auto* transposed =
      reinterpret_cast<uint32_t*>(to.transposed + first_column * rows + first_row) + lane;
#pragma unroll
  for (int i = 0; i < kTile / kWarps; ++i) {
    const int c = warp + i * kWarps;
    if (4 * lane < rows_left && c < columns_left)
      transposed[c * (rows / 4)] = tile[c][lane ^ (c / 4)];
  }
  join_amax(to.amax, to.met, largest);
}

/// Makes codes of (rows,columns) elements, one a thread, and their transpose if there is room for
/// it. It serves extents and addresses that no chapter's preset has.
template <class Fp8, class Source>
__global__ void encode(Codes<Fp8> to, Source source, int64_t rows, int64_t columns) {
  const int64_t i = thread_index();
  Floats<1> x{};
  if (i < rows * columns) {
    x = source.template part<1>(i, 1);
    uint8_t code[1];
    make_codes<Fp8>(code, x, to.scale);
    to.rows[i].bits = code[0];
    if (to.transposed) to.transposed[i % columns * rows + i / columns] = code[0];
  }
  join_amax(to.amax, to.met, larger_bits(0, x.at[0]));
}

/// Makes codes of the elements of `source`: source.part<W>(i, count) gives W of them from i on, of
/// which `count` exist. All addresses are aligned, unless W is 1. The host reads the scale when it
/// queues the kernel. No kernel writes it, and the host changes it only between steps.
template <int W, class Fp8, class Source>
void make_codes_of(const Ctx& ctx, const Tensor& out, const Source& source) {
  const int64_t rows = out.rows(), columns = out.dim(-1);
  const Codes<Fp8> to{.rows = device_data<Fp8>(out),
                      .transposed = static_cast<uint8_t*>(out.transposed),
                      .scale = out.fp8->scale,
                      .amax = &out.fp8->amax,
                      .met = static_cast<Met*>(device_of(ctx).joint())};
  if (W > 1 && to.transposed && rows % 4 == 0 && columns % 4 == 0)
    launch(ctx, encode_tiles<Fp8, Source>,
           {.x = ceil_div(rows, kTile), .y = ceil_div(columns, kTile)}, kThreads, 0, to, source,
           rows, columns);
  else
    launch(ctx, encode<Fp8, Source>, grid_over<1>(out.size()), kThreads, 0, to, source, rows,
           columns);
}

/// The same in the format of out.
template <int W, class Source>
void make_codes_of(const Ctx& ctx, const Tensor& out, const Source& source) {
  out.dtype == Dtype::E4M3 ? make_codes_of<W, E4m3>(ctx, out, source)
                           : make_codes_of<W, E5m2>(ctx, out, source);
}

}  // namespace ladder::LADDER_CUDA
