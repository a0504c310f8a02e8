// Rotary positions: one pass over queries and keys, in place. A token has one block. Its threads
// take W pairs at a time, of any of the token's heads. They read the token's angles from the caches
// again and again.
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/documents.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// Turns W pairs (x[i], x[half + i]), from i on, with the operations of `ref`. x (HS); angles (HS):
/// cosines, then sines; half = HS / 2
template <int W, class T>
__device__ void turn(T* x, const float* angles, int64_t half, int64_t i, bool back) {
  Floats<W> first = load<W>(x + i), second = load<W>(x + half + i);
  const Floats<W> c = load<W>(angles + i), forth = load<W>(angles + half + i);
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const float s = back ? -forth.at[j] : forth.at[j], a = first.at[j], b = second.at[j];
    first.at[j] = fmaf(a, c.at[j], -(b * s));
    second.at[j] = fmaf(b, c.at[j], a * s);
  }
  store<W>(x + i, first);
  store<W>(x + half + i, second);
}

/// qkv (B T,(NH+2*NKV)*HS); angles (P,HS). One block per row; W divides HS / 2.
template <int W, class T>
__global__ void turn_tokens(T* qkv, const float* angles, Positions positions, Extents s,
                            bool back) {
  const int64_t row = blockIdx.x, half = s.HS / 2;
  T* token = qkv + row * (s.NH + 2 * s.NKV) * s.HS;
  angles += positions[row] * s.HS;
  const int per_head = static_cast<int>(half / W), turned = static_cast<int>(s.NH / s.NKV) + 1;
  for (int at = static_cast<int>(threadIdx.x); at < s.NKV * turned * per_head; at += kThreads) {
    const int head = at / per_head, i = at % per_head * W;
    // A value follows the queries and the key of each group.
    turn<W>(token + (head + head / turned) * s.HS, angles, half, i, back);
  }
}

}  // namespace

void rope(const Ctx& ctx, Tensor qkv, Tensor angles, int64_t heads, bool back) {
  const Extents s = check_shapes(Op::rope, qkv, angles, heads);
  dispatch(qkv.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.HS / 2, {qkv, angles}, [&]<int W>(Width<W>) {
      launch(ctx, turn_tokens<W, T>, {.x = s.B * s.T}, kThreads, 0, device_data<T>(qkv),
             device_data<float>(angles), positions_of(ctx, s.B, s.T), s, back);
    });
  });
}

}  // namespace ladder::LADDER_CUDA
