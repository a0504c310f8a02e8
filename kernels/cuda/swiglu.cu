// SwiGLU. Gates and the values that they multiply alternate in memory. A thread takes pairs, 16
// bytes of gates and 16 bytes of values.
//
// As in elementwise.cu, one scalar function computes a channel, wherever the channel lies.
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

// ---- the functions -----------------------------------------------------------------------

/// Below -88, silu(x) is less than 1e-36 in size. The bound avoids infinity times 0. NaN stays.
__device__ float held(float gate) { return gate < -88 ? -88 : gate; }
__device__ float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }

/// silu(gate) up, with silu(x) = x s(x) and the logistic function s.
__device__ float gated(float gate, float up) {
  const float x = held(gate);
  return x * logistic(x) * up;
}

/// The gradients of gate and up: dout up (s + gate s (1 - s)), and dout silu(gate).
struct Gradients {
  float gate, up;
};
__device__ Gradients gated_backward(float dout, float gate, float up) {
  const float x = held(gate), s = logistic(x);
  // Above 88 the slope of s is 0. The bound avoids 0 times infinity.
  const float slope = fmaf(fminf(x, 88) * (1 - s), s, s);
  return {dout * up * slope, dout * (x * s)};
}

// ---- over arrays -------------------------------------------------------------------------

/// load() of pairs. A single pair need not be aligned.
template <int N, class T>
__device__ Floats<2 * N> load_pairs(const T* from) {
  if constexpr (N == 1)
    return {load<1>(from).at[0], load<1>(from + 1).at[0]};
  else
    return load<2 * N>(from);
}
template <int N, class T>
__device__ void store_pairs(T* to, const Floats<2 * N>& x) {
  if constexpr (N == 1) {
    store<1>(to, {x.at[0]});
    store<1>(to + 1, {x.at[1]});
  } else {
    store<2 * N>(to, x);
  }
}

/// out (n); inp (2n)
template <class T>
struct Forward {
  T* out;
  const T* inp;

  template <int N>
  __device__ void at(int64_t i) const {
    const Floats<2 * N> x = load_pairs<N>(inp + 2 * i);
    Floats<N> y;
#pragma unroll
    for (int j = 0; j < N; ++j) y.at[j] = gated(x.at[2 * j], x.at[2 * j + 1]);
    store<N>(out + i, y);
  }
};

/// dinp, inp (2n); dout (n)
template <class T>
struct Backward {
  T* dinp;
  const T *dout, *inp;

  template <int N>
  __device__ void at(int64_t i) const {
    const Floats<N> d = load<N>(dout + i);
    Floats<2 * N> x = load_pairs<N>(inp + 2 * i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Gradients dx = gated_backward(d.at[j], x.at[2 * j], x.at[2 * j + 1]);
      x.at[2 * j] = dx.gate;
      x.at[2 * j + 1] = dx.up;
    }
    store_pairs<N>(dinp + 2 * i, x);
  }
};

/// Calls f.at for each of [0, n). A thread takes N, the last thread one by one.
template <int N, class F>
__global__ void for_channels(F f, int64_t n) {
  int64_t i = thread_index() * N;
  if (i + N <= n) return f.template at<N>(i);
  for (; i < n; ++i) f.template at<1>(i);
}

}  // namespace

void swiglu_forward(const Ctx& ctx, Tensor out, Tensor inp) {
  check_shapes(Op::swiglu_forward, out, inp);
  const int64_t n = out.size();
  dispatch(out.dtype, [&]<class T>(Type<T>) {
    dispatch_width<kWidth<T>>({out, inp}, [&]<int W>(Width<W>) {
      const Forward<T> f{.out = device_data<T>(out), .inp = device_data<T>(inp)};
      launch(ctx, for_channels<W, Forward<T>>, grid_over<W>(n), kThreads, 0, f, n);
    });
  });
}

void swiglu_backward(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor inp) {
  check_shapes(Op::swiglu_backward, dinp, dout, inp);
  const int64_t n = dout.size();
  dispatch(dinp.dtype, [&]<class T>(Type<T>) {
    dispatch_width<kWidth<T>>({dinp, dout, inp}, [&]<int W>(Width<W>) {
      const Backward<T> f{
          .dinp = device_data<T>(dinp), .dout = device_data<T>(dout), .inp = device_data<T>(inp)};
      launch(ctx, for_channels<W, Backward<T>>, grid_over<W>(n), kThreads, 0, f, n);
    });
  });
}

}  // namespace ladder::LADDER_CUDA
