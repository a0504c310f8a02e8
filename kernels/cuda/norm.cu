// Layer norm and RMSNorm. A warp keeps a token's row in shared memory, so that it is read once:
// first the mean, then the squares of what is left, which cancels nothing. Where there is no mean,
// it is 0.
//
// Each lane reads back only what it wrote itself: no barrier is needed.
#include <algorithm>

#include "kernels/cuda/columns.h"
#include "kernels/cuda/table.h"
#include "kernels/shapes.h"

namespace ladder::LADDER_CUDA {
namespace {

constexpr float kEpsilon = 1e-5f;

/// Rows of a block, a warp for each, where `bytes` of a row are kept.
int rows_per_block(int64_t bytes) {
  constexpr int64_t kShared = 48 << 10;  // a longer row takes more, if the device has it
  return static_cast<int>(std::clamp(kShared / bytes, int64_t{1}, int64_t{kThreads / kWarp}));
}

__device__ int64_t row_of_warp() {
  return static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + warp_index();
}

/// out (rows,C); mean (rows) or null; rstd (rows); inp (rows,C); w (C); b (C) or null
template <class T, int W>
__global__ void forward_rows(T* out, float* mean, float* rstd, const T* inp, const T* w, const T* b,
                             int64_t rows, int64_t C) {
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  T* kept = dynamic_shared<T>() + warp_index() * C;
  const int64_t first = lane_index() * W;
  float sum = 0;
  for (int64_t c = first; c < C; c += kWarp * W) {
    const Floats<W> x = load<W>(inp + row * C + c);
    store<W>(kept + c, x);
    for (int i = 0; i < W; ++i) sum += x.at[i];
  }
  const float m = mean ? warp_sum(sum) / static_cast<float>(C) : 0;
  float squares = 0;
  for (int64_t c = first; c < C; c += kWarp * W) {
    const Floats<W> x = load<W>(kept + c);
    for (int i = 0; i < W; ++i) squares = fmaf(x.at[i] - m, x.at[i] - m, squares);
  }
  const float r = 1 / sqrtf(warp_sum(squares) / static_cast<float>(C) + kEpsilon);
  for (int64_t c = first; c < C; c += kWarp * W) {
    Floats<W> x = load<W>(kept + c);
    const Floats<W> weight = load<W>(w + c), bias = load_or_nothing<W>(b, c);
    for (int i = 0; i < W; ++i) x.at[i] = fmaf((x.at[i] - m) * r, weight.at[i], bias.at[i]);
    store<W>(out + row * C + c, x);
  }
  if (lane_index() > 0) return;
  if (mean) mean[row] = m;
  rstd[row] = r;
}

/// dinp, dout, inp (rows,C); w (C); mean (rows) or null; rstd (rows)
template <class T, int W>
__global__ void backward_rows(T* dinp, const T* dout, const T* inp, const T* w, const float* mean,
                              const float* rstd, int64_t rows, int64_t C) {
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  T* kept_x = dynamic_shared<T>() + 2 * warp_index() * C;
  T* kept_d = kept_x + C;
  const int64_t first = lane_index() * W;
  const float m = mean ? mean[row] : 0, r = rstd[row];
  float sum_g = 0, sum_g_xhat = 0;
  for (int64_t c = first; c < C; c += kWarp * W) {
    const Floats<W> x = load<W>(inp + row * C + c), d = load<W>(dout + row * C + c);
    const Floats<W> weight = load<W>(w + c);
    store<W>(kept_x + c, x);
    store<W>(kept_d + c, d);
    for (int i = 0; i < W; ++i) {
      const float g = d.at[i] * weight.at[i];
      sum_g += g;
      sum_g_xhat = fmaf(g, (x.at[i] - m) * r, sum_g_xhat);
    }
  }
  const float mean_g = mean ? warp_sum(sum_g) / static_cast<float>(C) : 0;
  const float mean_g_xhat = warp_sum(sum_g_xhat) / static_cast<float>(C);
  for (int64_t c = first; c < C; c += kWarp * W) {
    Floats<W> x = load<W>(kept_x + c);
    const Floats<W> d = load<W>(kept_d + c), weight = load<W>(w + c);
    for (int i = 0; i < W; ++i) {
      const float g = d.at[i] * weight.at[i], xhat = (x.at[i] - m) * r;
      x.at[i] = r * fmaf(-xhat, mean_g_xhat, g - mean_g);
    }
    store<W>(dinp + row * C + c, x);
  }
}

/// Terms of dw and db.
template <class T, int W>
struct NormTerms {
  const T *dout, *inp;       ///< (B,T,C)
  const float *mean, *rstd;  ///< (B,T); mean may be null
  int64_t C;

  __device__ void add(Floats<W> (&sum)[2], int64_t row, int64_t c) const {
    const Floats<W> d = load<W>(dout + row * C + c), x = load<W>(inp + row * C + c);
    const float m = mean ? mean[row] : 0, r = rstd[row];
    for (int i = 0; i < W; ++i) {
      sum[0].at[i] = fmaf(d.at[i], (x.at[i] - m) * r, sum[0].at[i]);
      sum[1].at[i] += d.at[i];
    }
  }
};

}  // namespace

void norm_forward(const Ctx& ctx, Tensor out, Tensor mean, Tensor rstd, Tensor inp, Tensor w,
                  Tensor b) {
  const NormShape s = check_norm_forward(out, mean, rstd, inp, w, b);
  const int64_t rows = s.B * s.T, kept = s.C * size_of(inp.dtype);
  const int warps = rows_per_block(kept);
  dispatch(inp.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.C, {out, inp, w, b}, [&]<int W>(Width<W>) {
      launch(ctx, forward_rows<T, W>, {.x = ceil_div(rows, warps)}, warps * kWarp, warps * kept,
             device_data<T>(out), device_data<float>(mean), device_data<float>(rstd),
             device_data<T>(inp), device_data<T>(w), device_data<T>(b), rows, s.C);
    });
  });
}

void norm_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor inp, Tensor w,
                         Tensor mean, Tensor rstd) {
  const NormShape s = check_norm_backward_input(dinp, dout, inp, w, mean, rstd);
  const int64_t rows = s.B * s.T, kept = 2 * s.C * size_of(inp.dtype);
  const int warps = rows_per_block(kept);
  dispatch(inp.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.C, {dinp, dout, inp, w}, [&]<int W>(Width<W>) {
      launch(ctx, backward_rows<T, W>, {.x = ceil_div(rows, warps)}, warps * kWarp, warps * kept,
             device_data<T>(dinp), device_data<T>(dout), device_data<T>(inp), device_data<T>(w),
             device_data<float>(mean), device_data<float>(rstd), rows, s.C);
    });
  });
}

void norm_backward_weight(const Ctx& ctx, Tensor dw, Tensor db, Tensor dout, Tensor inp,
                          Tensor mean, Tensor rstd, Into into) {
  const NormShape s = check_norm_backward_weight(dw, db, dout, inp, mean, rstd);
  Scratch scratch(ctx);
  dispatch(inp.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.C, {dout, inp}, [&]<int W>(Width<W>) {
      const NormTerms<T, W> terms{.dout = device_data<T>(dout),
                                  .inp = device_data<T>(inp),
                                  .mean = device_data<float>(mean),
                                  .rstd = device_data<float>(rstd),
                                  .C = s.C};
      sum_columns<2, W>(ctx, {device_data<float>(dw), device_data<float>(db)}, scratch, terms,
                        {ctx.token_chunks, s.B, s.T}, s.C, into);
    });
  });
}

}  // namespace ladder::LADDER_CUDA
