// Layer norm and RMSNorm. A warp keeps a token's row in registers. So all loads of the row are in
// progress at once, and it is read only once. The mean comes first, then the squares of the
// differences, so no large numbers cancel. Without a mean, 0 stands in its place.
#include "kernels/cuda/columns.h"
#include "kernels/cuda/table.h"
#include "kernels/documents.h"
#include "kernels/shapes.h"

namespace ladder::LADDER_CUDA {
namespace {

constexpr float kEpsilon = 1e-5f;

/// Rows of a block: one warp for each.
constexpr int kRows = kThreads / kWarp;

__device__ int64_t row_of_warp() { return int64_t{blockIdx.x} * kRows + warp_index(); }

/// A lane's share of a row (C): W neighbors of every 32 W. N such parts are in registers. If N is
/// 0, the row is too long for registers, and is read again each time.
template <class T, int W, int N>
class LaneRow {
 public:
  __device__ LaneRow(const T* from, int64_t C) : from_(from), C_(C) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (column(i) < C_) part_[i] = Packed<W, T>(from_ + column(i));
  }

  /// Calls f(c, parts) with the parts of this row and of others that begin at column c.
  template <class F, class... Others>
  __device__ void each(F&& f, const Others&... other) const {
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (column(i) < C_) f(column(i), part_[i].wide(), other.part_[i].wide()...);
    if constexpr (N == 0)
      for (int i = 0; column(i) < C_; ++i)
        f(column(i), load<W>(from_ + column(i)), load<W>(other.from_ + column(i))...);
  }

  /// Between two passes: parts stay as they lie in memory, in half the registers of floats.
  __device__ void forget_wide() {
#pragma unroll
    for (int i = 0; i < N; ++i) part_[i].forget_wide();
  }

 private:
  static __device__ int column(int i) { return (i * kWarp + lane_index()) * W; }

  const T* from_;
  int64_t C_;
  Packed<W, T> part_[N > 0 ? N : 1];
};

/// out (rows,C); mean (rows) or null; rstd (rows); inp (rows,C); w (C); b (C) or null
template <class T, int W, int N>
__global__ void __launch_bounds__(kThreads)
    forward_rows(T* out, float* mean, float* rstd, const T* inp, const T* w, const T* b,
                 int64_t rows, int64_t C) {
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  LaneRow<T, W, N> own(inp + row * C, C);
  float sum = 0, squares = 0;
  own.each([&](int, const Floats<W>& x) {
    for (int i = 0; i < W; ++i) sum += x.at[i];
  });
  const float m = mean ? warp_sum(sum) / static_cast<float>(C) : 0;
  own.forget_wide();
  own.each([&](int, const Floats<W>& x) {
    for (int i = 0; i < W; ++i) squares = fmaf(x.at[i] - m, x.at[i] - m, squares);
  });
  const float r = 1 / sqrtf(warp_sum(squares) / static_cast<float>(C) + kEpsilon);
  own.forget_wide();
  own.each([&](int c, Floats<W> x) {
    const Floats<W> weight = load<W>(w + c), bias = load_or_nothing<W>(b, c);
    for (int i = 0; i < W; ++i) x.at[i] = fmaf((x.at[i] - m) * r, weight.at[i], bias.at[i]);
    store<W>(out + row * C + c, x);
  });
  if (lane_index() > 0) return;
  if (mean) mean[row] = m;
  rstd[row] = r;
}

/// With xhat = (inp - mean) rstd and g = dout w: dinp = rstd (g - mean(g) - xhat mean(g xhat)).
/// dinp, dout, inp (rows,C); w (C); mean (rows) or null; rstd (rows)
template <class T, int W, int N>
__global__ void __launch_bounds__(kThreads)
    backward_rows(T* dinp, const T* dout, const T* inp, const T* w, const float* mean,
                  const float* rstd, int64_t rows, int64_t C) {
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  LaneRow<T, W, N> own_x(inp + row * C, C), own_d(dout + row * C, C);
  const float m = mean ? mean[row] : 0, r = rstd[row];
  float sum_g = 0, sum_g_xhat = 0;
  const auto add = [&](int c, const Floats<W>& x, const Floats<W>& d) {
    const Floats<W> weight = load<W>(w + c);
    for (int i = 0; i < W; ++i) {
      const float g = d.at[i] * weight.at[i];
      sum_g += g;
      sum_g_xhat = fmaf(g, (x.at[i] - m) * r, sum_g_xhat);
    }
  };
  own_x.each(add, own_d);
  const float mean_g = mean ? warp_sum(sum_g) / static_cast<float>(C) : 0;
  const float mean_g_xhat = warp_sum(sum_g_xhat) / static_cast<float>(C);
  own_x.forget_wide();
  own_d.forget_wide();
  const auto write = [&](int c, Floats<W> x, const Floats<W>& d) {
    const Floats<W> weight = load<W>(w + c);
    for (int i = 0; i < W; ++i) {
      const float g = d.at[i] * weight.at[i], xhat = (x.at[i] - m) * r;
      x.at[i] = r * fmaf(-xhat, mean_g_xhat, g - mean_g);
    }
    store<W>(dinp + row * C + c, x);
  };
  own_x.each(write, own_d);
}

/// Passes the number of parts of a LaneRow to a lambda.
template <int N>
struct Parts {};

/// Calls f(Parts<N>) for rows of C elements whose lanes keep up to N parts of W elements. N is 0
/// where a row has more than Most parts, or is not aligned (W = 1). Backward keeps two rows, so its
/// Most is half of forward's.
template <int W, int Most, class F>
void dispatch_parts(int64_t C, F&& f) {
  const int64_t parts = ceil_div(C, kWarp * W);
  if constexpr (W > 1) {
    if (parts <= 4) return f(Parts<4>{});
    if (parts <= 8) return f(Parts<8>{});
    if (parts <= Most) return f(Parts<Most>{});
  }
  f(Parts<0>{});
}

/// The terms of dw and db, for sum_columns.
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
  const Extents s = check_shapes(Op::norm_forward, out, mean, rstd, inp, w, b);
  const int64_t rows = s.B * s.T;
  dispatch(inp.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.C, {out, inp, w, b}, [&]<int W>(Width<W>) {
      dispatch_parts<W, 16>(s.C, [&]<int N>(Parts<N>) {
        launch(ctx, forward_rows<T, W, N>, {.x = ceil_div(rows, kRows)}, kThreads, 0,
               device_data<T>(out), device_data<float>(mean), device_data<float>(rstd),
               device_data<T>(inp), device_data<T>(w), device_data<T>(b), rows, s.C);
      });
    });
  });
}

void norm_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor inp, Tensor w,
                         Tensor mean, Tensor rstd) {
  const Extents s = check_shapes(Op::norm_backward_input, dinp, dout, inp, w, mean, rstd);
  const int64_t rows = s.B * s.T;
  dispatch(inp.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.C, {dinp, dout, inp, w}, [&]<int W>(Width<W>) {
      dispatch_parts<W, 8>(s.C, [&]<int N>(Parts<N>) {
        launch(ctx, backward_rows<T, W, N>, {.x = ceil_div(rows, kRows)}, kThreads, 0,
               device_data<T>(dinp), device_data<T>(dout), device_data<T>(inp), device_data<T>(w),
               device_data<float>(mean), device_data<float>(rstd), rows, s.C);
      });
    });
  });
}

void norm_backward_weight(const Ctx& ctx, Tensor dw, Tensor db, Tensor dout, Tensor inp,
                          Tensor mean, Tensor rstd, Into into) {
  const Extents s = check_shapes(Op::norm_backward_weight, dw, db, dout, inp, mean, rstd);
  Scratch scratch(ctx);
  dispatch(inp.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.C, {dout, inp}, [&]<int W>(Width<W>) {
      const NormTerms<T, W> terms{.dout = device_data<T>(dout),
                                  .inp = device_data<T>(inp),
                                  .mean = device_data<float>(mean),
                                  .rstd = device_data<float>(rstd),
                                  .C = s.C};
      sum_columns<2, W>(ctx, {device_data<float>(dw), device_data<float>(db)}, scratch, terms,
                        {ctx.token_chunks, sequences_of(ctx, s.B, s.T)}, s.C, into);
    });
  });
}

}  // namespace ladder::LADDER_CUDA
