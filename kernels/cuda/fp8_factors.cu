#include "kernels/cuda/convert.h"
#include "kernels/cuda/fp8_factors.h"
#include "kernels/cuda/vectors.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// Codes that a thread widens, kThreads apart.
constexpr int kCodes = 16;

/// out = the values of codes, without their scale. All blocks of one x take one row. out T
/// (rows,columns); inp (rows,columns), rows `stride` apart
template <class T, class Code>
__global__ void widen_kernel(T* out, const Code* inp, int64_t columns, int64_t stride) {
  const int64_t row = blockIdx.x;
  const int64_t end = std::min((int64_t{blockIdx.y} + 1) * kThreads * kCodes, columns);
  for (int64_t i = int64_t{blockIdx.y} * kThreads * kCodes + threadIdx.x; i < end; i += kThreads)
    out[row * columns + i] = from_float<T>(value_of(inp[row * stride + i]));
}

/// A tensor at scratch[offset..). offset moves behind it.
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

}  // namespace ladder::LADDER_CUDA
