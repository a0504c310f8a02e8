// Operations on single elements: one pass over memory each. A thread takes 16 bytes at a time, or
// one element in copy_columns.
//
// What is computed for an element is one scalar function, wherever the element lies: alone at the
// end of an array it has the same bits as among its neighbors.
#include "kernels/cuda/fp8_codes.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/shapes.h"
#include "launch.h"
#include "ptx.h"

namespace ladder::LADDER_CUDA {
namespace {

// ---- the functions -----------------------------------------------------------------------

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct Times {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};

/// residual + (product + bias)
struct Residual {
  __device__ float operator()(float residual, float product, float bias) const {
    return residual + (product + bias);
  }
};

constexpr float kTwoRootTwoOverPi = 1.5957691216f;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715f;

/// 1/2 (1 + tanh u) = s(2 u) with the logistic function s(z) = 1 / (1 + e^-z). So one exponential
/// is enough, and nothing overflows. 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3). An exponential and a
/// division in full precision would take longer than memory does.
__device__ float gate(float x) {
  const float inner = fmaf(kCubic * (x * x), x, x);
  return reciprocal_quick(1.0f + exp2_quick(-kTwoRootTwoOverPi * kLog2e * inner));
}

/// gelu(x) = x s(2 u)
struct Gelu {
  __device__ float operator()(float x) const {
    // Below -16 the result is 0 in FP32. The bound avoids infinity times 0. NaN stays.
    const float v = x < -16 ? -16 : x;
    return v * gate(v);
  }
};

/// dout gelu'(x), gelu'(x) = s + x s' d(2 u)/dx, where s = s(2 u)
struct GeluBackward {
  __device__ float operator()(float dout, float x) const {
    const float s = gate(x);
    // s' = s (1 - s);  d(2 u)/dx = 2 sqrt(2 / pi) (1 + 3 0.044715 x^2).
    // Beyond |x| = 16 the slope of s is 0. The bound avoids 0 times infinity.
    const float near = fminf(fmaxf(x, -16), 16);
    const float slope = kTwoRootTwoOverPi * fmaf(3 * kCubic, near * near, 1);
    return dout * fmaf(near, s * (1 - s) * slope, s);
  }
};

/// x, as memory of type T would keep it.
template <class T>
struct Rounded {
  __device__ float operator()(float x) const { return to_float(from_float<T>(x)); }
};

// ---- over arrays -------------------------------------------------------------------------

/// f of N neighbors, one after the other.
template <int N, class F, class... Inputs>
__device__ Floats<N> each(F f, const Inputs&... x) {
  Floats<N> y;
#pragma unroll
  for (int j = 0; j < N; ++j) y.at[j] = f(x.at[j]...);
  return y;
}

/// out[i] = f(inp[i]...) for i in [0, n). A thread takes N elements, the last thread one by one.
template <int N, class T, class F, class... Inputs>
__global__ void map_kernel(T* out, int64_t n, F f, const Inputs*... inp) {
  int64_t i = thread_index() * N;
  if (i + N <= n) return store(out + i, each<N>(f, load<N>(inp + i)...));
  for (; i < n; ++i) store(out + i, each<1>(f, load<1>(inp + i)...));
}

/// T, once for each type of a pack.
template <class T, class>
using Each = T;

/// out = f(inp...), element by element. All have one dtype. An input may be the output.
template <class F, class... Inputs>
void map(const Ctx& ctx, const Tensor& out, F f, const Inputs&... inp) {
  dispatch(out.dtype, [&]<class T>(Type<T>) {
    dispatch_width<kWidth<T>>({out, inp...}, [&]<int W>(Width<W>) {
      launch(ctx, map_kernel<W, T, F, Each<T, Inputs>...>, grid_over<W>(out.size()), kThreads, 0,
             device_data<T>(out), out.size(), f, device_data<T>(inp)...);
    });
  });
}

/// N divides C, or is 1. out, residual, product (rows, C); bias (C) or null, read once for all rows
/// of a RowBlock
template <int N, class T>
__global__ void residual_kernel(T* out, const T* residual, const T* product, const T* bias,
                                int64_t rows, int64_t C) {
  const RowBlock at = row_block<N>();
  if (at.column >= C) return;
  const auto b = load_or_nothing<N>(bias, at.column);
  for (int r = 0; r < kBlockRows; ++r) {
    const int64_t i = (at.row + r) * C + at.column;
    if (at.row + r < rows)
      store(out + i, each<N>(Residual{}, load<N>(residual + i), load<N>(product + i), b));
  }
}

/// Copies `count` neighbors of each row, n elements in all. Rows of `to` are to_row elements apart,
/// those of `from` from_row. Thread i takes column i % count of row i / count.
template <class To, class From>
__global__ void columns_kernel(To* to, int64_t to_row, const From* from, int64_t from_row,
                               int64_t count, int64_t n) {
  const int64_t i = thread_index(), row = i / count, column = i % count;
  if (i < n) to[row * to_row + column] = from_float<To>(to_float(from[row * from_row + column]));
}

/// What gelu_forward would store, as a source of codes (make_codes_of).
template <class T>
struct GeluOf {
  const T* inp;

  template <int W>
  __device__ Floats<W> part(int64_t i, int64_t count) const {
    return each<W>(Rounded<T>{}, each<W>(Gelu{}, load_part<W>(inp + i, count)));
  }
};

/// What gelu_backward stores, as a source of codes. It is stored, too.
template <class T>
struct GeluBackwardOf {
  T* dinp;
  const T *dout, *inp;

  template <int W>
  __device__ Floats<W> part(int64_t i, int64_t count) const {
    const Floats<W> d = each<W>(Rounded<T>{}, each<W>(GeluBackward{}, load_part<W>(dout + i, count),
                                                      load_part<W>(inp + i, count)));
    store_part<W>(dinp + i, d, count);
    return d;
  }
};

}  // namespace

void residual_forward(const Ctx& ctx, Tensor out, Tensor residual, Tensor product, Tensor bias) {
  const Extents s = check_shapes(Op::residual_forward, out, residual, product, bias);
  dispatch(out.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.C, {out, residual, product, bias}, [&]<int W>(Width<W>) {
      launch(ctx, residual_kernel<W, T>, row_grid<W>(s.R, s.C), row_threads<W>(s.C), 0,
             device_data<T>(out), device_data<T>(residual), device_data<T>(product),
             device_data<T>(bias), s.R, s.C);
    });
  });
}

void add(const Ctx& ctx, Tensor out, Tensor a, Tensor b) {
  check_shapes(Op::add, out, a, b);
  map(ctx, out, Plus{}, a, b);
}

void copy_columns(const Ctx& ctx, Tensor to, int64_t to_column, Tensor from, int64_t from_column,
                  int64_t count) {
  const Extents s = check_shapes(Op::copy_columns, to, to_column, from, from_column, count);
  const int64_t n = s.R * s.G * count;
  dispatch(to.dtype, [&]<class To>(Type<To>) {
    dispatch(from.dtype, [&]<class From>(Type<From>) {
      launch(ctx, columns_kernel<To, From>, grid_over<1>(n), kThreads, 0,
             device_data<To>(to) + to_column, s.N, device_data<From>(from) + from_column, s.M,
             count, n);
    });
  });
}

void scale(const Ctx& ctx, Tensor x, float factor) {
  check_shapes(Op::scale, x);
  map(ctx, x, Times{factor}, x);
}

void gelu_forward(const Ctx& ctx, Tensor out, Tensor inp) {
  check_shapes(Op::gelu_forward, out, inp);
  map(ctx, out, Gelu{}, inp);
}

void gelu_backward(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor inp) {
  check_shapes(Op::gelu_backward, dinp, dout, inp);
  map(ctx, dinp, GeluBackward{}, dout, inp);
}

// ---- codes of what GELU gives --------------------------------------------------------------

void gelu_forward_codes(const Ctx& ctx, Tensor codes, Tensor out, Tensor inp) {
  check_shapes(Op::gelu_forward_codes, codes, out, inp);
  dispatch(inp.dtype, [&]<class T>(Type<T>) {
    dispatch_width<kWidth<T>>({codes, inp}, [&]<int W>(Width<W>) {
      make_codes_of<W>(ctx, codes, GeluOf<T>{device_data<T>(inp)});
    });
  });
}

void gelu_backward_codes(const Ctx& ctx, Tensor codes, Tensor dinp, Tensor dout, Tensor inp) {
  check_shapes(Op::gelu_backward_codes, codes, dinp, dout, inp);
  dispatch(inp.dtype, [&]<class T>(Type<T>) {
    dispatch_width<kWidth<T>>({codes, dinp, dout, inp}, [&]<int W>(Width<W>) {
      make_codes_of<W>(
          ctx, codes,
          GeluBackwardOf<T>{device_data<T>(dinp), device_data<T>(dout), device_data<T>(inp)});
    });
  });
}

}  // namespace ladder::LADDER_CUDA
