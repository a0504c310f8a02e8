#include "kernels/cuda/convert.h"
#include "kernels/cuda/fp8_factors.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// Codes of one thread that widens: 16 bytes.
constexpr int kCodes = 16;

/// out = the values of codes, without their scale; a column of blocks takes a row. out T
/// (rows,columns); inp (rows,columns), rows `stride` apart
template <class T, class Code>
__global__ void widen_kernel(T* out, const Code* inp, int64_t columns, int64_t stride) {
  const int64_t row = blockIdx.x;
  const int64_t begin = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kCodes;
  for (int64_t i = begin; i < begin + kCodes && i < columns; ++i)
    out[row * columns + i] = from_float<T>(value_of(inp[row * stride + i]));
}

/// A block transposes a tile of kTile x kTile codes, four codes a word.
constexpr int kTile = 128;
constexpr int kWords = kTile / 4;

/// out (columns,rows) = the transpose of inp (rows,columns), rows `stride` bytes apart; all
/// multiples of 4.
__global__ void transpose_kernel(uint32_t* out, const uint8_t* inp, int64_t rows, int64_t columns,
                                 int64_t stride) {
  // Word w of a column c lies at w ^ (c / 4): lanes that write one word of different columns ask
  // for different banks, and so do lanes that read the words of one column.
  __shared__ uint32_t tile[kTile][kWords];
  const int64_t first_row = int64_t{blockIdx.x} * kTile, first_column = int64_t{blockIdx.y} * kTile;
  const int lane = lane_index();
#pragma unroll
  for (int w = warp_index(); w < kWords; w += kThreads / kWarp) {
    const int64_t row = first_row + 4 * w, column = first_column + 4 * lane;
    if (row >= rows || column >= columns) continue;
    uint32_t four[4];
    for (int r = 0; r < 4; ++r)
      four[r] = *reinterpret_cast<const uint32_t*>(inp + (row + r) * stride + column);
    for (int c = 0; c < 4; ++c) {
      uint32_t word = 0;
      for (int r = 0; r < 4; ++r) word |= (four[r] >> 8 * c & 0xFF) << 8 * r;
      tile[4 * lane + c][w ^ lane] = word;
    }
  }
  __syncthreads();
  const int64_t row = first_row + 4 * lane;
  for (int c = warp_index(); c < kTile; c += kThreads / kWarp) {
    const int64_t column = first_column + c;
    if (row < rows && column < columns) out[(column * rows + row) / 4] = tile[c][lane ^ (c / 4)];
  }
}

/// A tensor in scratch[offset..), which moves on.
Tensor take(const Ctx& ctx, Dtype dtype, Shape shape, int64_t& offset) {
  const Tensor taken{.ptr = static_cast<char*>(ctx.scratch.ptr) + offset,
                     .dtype = dtype,
                     .place = ctx.scratch.place,
                     .shape = shape};
  offset += round_up<int64_t>(taken.bytes(), 256);
  CHECK(offset <= ctx.scratch.bytes(), "{} in FP8 needs {} bytes of scratch, not {}",
        to_string(shape), offset, ctx.scratch.bytes());
  return taken;
}

}  // namespace

Tensor widened_columns(const Ctx& ctx, const Tensor& x, int64_t begin, int64_t count, Dtype dtype,
                       int64_t& offset) {
  const int64_t rows = x.dim(0), columns = x.dim(1);
  const Tensor wide = take(ctx, dtype, {rows, count}, offset);
  // All columns lie like one row.
  const Grid grid = count == columns ? Grid{.y = ceil_div(rows * columns, kThreads * kCodes)}
                                     : Grid{.x = rows, .y = ceil_div(count, kThreads * kCodes)};
  const auto start = [&]<class T, class Code>(Type<T>, Type<Code>) {
    launch(ctx, widen_kernel<T, Code>, grid, kThreads, 0, device_data<T>(wide),
           device_data<Code>(x) + begin, count == columns ? rows * columns : count, columns);
  };
  const auto start_from = [&]<class T>(Type<T> to) {
    return x.dtype == Dtype::E4M3 ? start(to, Type<E4m3>{}) : start(to, Type<E5m2>{});
  };
  dtype == Dtype::F16 ? start_from(Type<__half>{}) : start_from(Type<__nv_bfloat16>{});
  return wide;
}

Tensor transposed_columns(const Ctx& ctx, const Tensor& x, int64_t begin, int64_t count,
                          int64_t& offset) {
  const int64_t rows = x.dim(0);
  const Tensor turned = take(ctx, x.dtype, {count, rows}, offset);
  launch(ctx, transpose_kernel, {.x = ceil_div(rows, kTile), .y = ceil_div(count, kTile)}, kThreads,
         0, static_cast<uint32_t*>(turned.ptr), static_cast<const uint8_t*>(x.ptr) + begin, rows,
         count, x.dim(1));
  return turned;
}

}  // namespace ladder::LADDER_CUDA
