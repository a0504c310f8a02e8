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

/// A block transposes a tile of kTile x kTile codes, four codes a word. A thread turns squares of
/// four by four.
constexpr int kTile = 128;
constexpr int kWords = kTile / 4;
constexpr int kWarps = kThreads / kWarp;

/// Byte c of row r goes to byte r of row c.
__device__ inline void transpose_square(uint32_t (&x)[4]) {
  const uint32_t low_a = __byte_perm(x[0], x[1], 0x5140), high_a = __byte_perm(x[0], x[1], 0x7362);
  const uint32_t low_b = __byte_perm(x[2], x[3], 0x5140), high_b = __byte_perm(x[2], x[3], 0x7362);
  x[0] = __byte_perm(low_a, low_b, 0x5410);
  x[1] = __byte_perm(low_a, low_b, 0x7632);
  x[2] = __byte_perm(high_a, high_b, 0x5410);
  x[3] = __byte_perm(high_a, high_b, 0x7632);
}

/// out (columns,rows) = the transpose of inp (rows,columns), rows `stride` bytes apart; all
/// multiples of 4.
__global__ void transpose_kernel(uint32_t* out, const uint8_t* inp, int64_t rows, int64_t columns,
                                 int64_t stride) {
  // Word w of a column c lies at w ^ (c / 4): lanes that write one word of different columns ask
  // for different banks, and so do lanes that read the words of one column.
  __shared__ uint32_t tile[kTile][kWords];
  const int lane = lane_index(), warp = warp_index();
  const int64_t first_row = int64_t{blockIdx.x} * kTile, first_column = int64_t{blockIdx.y} * kTile;
  // From here on what is left of the matrix.
  const auto rows_left = static_cast<int>(rows - first_row < kTile ? rows - first_row : kTile);
  const auto columns_left =
      static_cast<int>(columns - first_column < kTile ? columns - first_column : kTile);
  inp += first_row * stride + first_column + 4 * lane;
  uint32_t squares[kWords / kWarps][4] = {};
#pragma unroll
  for (int i = 0; i < kWords / kWarps; ++i)
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = 4 * (warp + i * kWarps) + r;
      if (row < rows_left && 4 * lane < columns_left)
        squares[i][r] = *reinterpret_cast<const uint32_t*>(inp + row * stride);
    }
#pragma unroll
  for (int i = 0; i < kWords / kWarps; ++i) {
    transpose_square(squares[i]);
#pragma unroll
    for (int c = 0; c < 4; ++c) tile[4 * lane + c][(warp + i * kWarps) ^ lane] = squares[i][c];
  }
  __syncthreads();
  out += (first_column * rows + first_row) / 4 + lane;
#pragma unroll
  for (int i = 0; i < kTile / kWarps; ++i) {
    const int c = warp + i * kWarps;
    if (4 * lane < rows_left && c < columns_left) out[c * (rows / 4)] = tile[c][lane ^ (c / 4)];
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
