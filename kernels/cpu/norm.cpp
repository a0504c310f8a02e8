// Layer norm and RMSNorm. A row's statistics are sums in 16 lanes, in two passes: first the mean,
// then the squares of the differences. So no large numbers cancel. If there is no mean or no b, 0
// or -0 stands in its place: subtracting the one or adding the other changes no number.
#include <array>
#include <cmath>
#include <type_traits>

#include "kernels/cpu/columns.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/table.h"
#include "kernels/documents.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

constexpr float kEpsilon = 1e-5f;
struct Statistics {
  float mean, rstd;
};

/// The statistics of a row, as norm_forward wrote them. mean may be null.
HWY_INLINE Statistics statistics_of(int64_t row, const float* mean, const float* rstd) {
  return {.mean = mean ? mean[row] : 0, .rstd = rstd[row]};
}

/// How many rows norm_forward sums together.
constexpr size_t kRowsAtOnce = 4;

/// The statistics of N rows of C channels. `centred`: there is a mean.
template <size_t N, class Real>
std::array<Statistics, N> statistics(const Real* x, int64_t C, bool centred) {
  const auto at = [&](size_t row, int64_t c) { return x + static_cast<int64_t>(row) * C + c; };
  const auto extent = static_cast<float>(C);
  std::array<float, N> mean{};
  if (centred) {
    mean = lane_sums<N>(C, [&](size_t row, int64_t c, auto io) { return io.load(at(row, c)); });
    for (float& m : mean) m /= extent;
  }
  const auto squares = lane_sums<N>(C, [&](size_t row, int64_t c, auto io) {
    const Vec rest = io.only(hn::Sub(io.load(at(row, c)), broadcast(mean[row])));
    return hn::Mul(rest, rest);
  });
  std::array<Statistics, N> found;
  for (size_t row = 0; row < N; ++row)
    found[row] = {.mean = mean[row], .rstd = 1.0f / std::sqrt(squares[row] / extent + kEpsilon)};
  return found;
}

/// norm_forward for N tokens of C channels; b may be null. The last pass over a row asks for the
/// memory of the next rows, one line for each line that it writes. So the first passes over those
/// rows wait for no memory.
template <class Wide, size_t N, class Real>
std::array<Statistics, N> forward(Real* y, const Real* x, const Real* w, const Real* b, int64_t C,
                                  bool centred) {
  const std::array<Statistics, N> found = statistics<N>(x, C, centred);
  for (const Statistics& s : found) {
    for_vectors<Wide>(0, C, [&](int64_t c, auto io) {
      Wide::ask(x + static_cast<int64_t>(N) * C + c);
      const Vec xhat = hn::Mul(hn::Sub(io.load(x + c), broadcast(s.mean)), broadcast(s.rstd));
      const Vec bias = b ? io.load(b + c) : nothing();
      io.store(hn::MulAdd(xhat, io.load(w + c), bias), y + c);
    });
    x += C;
    y += C;
  }
  return found;
}

/// norm_backward_input for one token of C channels.
template <class Wide, class Real>
void backward_input(Real* dx, const Real* dy, const Real* x, const Real* w, const Statistics& s,
                    int64_t C, bool centred) {
  const Vec m = broadcast(s.mean);
  const Vec r = broadcast(s.rstd);
  const auto xhat = [&](int64_t c, auto io) { return hn::Mul(hn::Sub(io.load(x + c), m), r); };
  const auto g = [&](int64_t c, auto io) { return hn::Mul(io.load(dy + c), io.load(w + c)); };
  LaneAcc sum_g(zero());
  LaneAcc sum_gx(zero());
  for_lanes(C, [&](int64_t part, int64_t c, auto io) {
    const Vec gc = g(c, io);
    sum_g[part] = hn::Add(sum_g[part], gc);
    sum_gx[part] = hn::MulAdd(gc, xhat(c, io), sum_gx[part]);
  });
  const auto extent = static_cast<float>(C);
  const Vec mean_g = broadcast(centred ? sum_g.sum() / extent : 0);
  const Vec mean_gx = broadcast(sum_gx.sum() / extent);
  for_vectors<Wide>(0, C, [&](int64_t c, auto io) {
    Wide::ask(dy + C + c);  // the next row, as in forward()
    Wide::ask(x + C + c);
    const Vec rest = hn::NegMulAdd(xhat(c, io), mean_gx, hn::Sub(g(c, io), mean_g));
    io.store(hn::Mul(r, rest), dx + c);
  });
}

/// Adds dy xhat and dy of one token, in the columns that dy and x point at.
template <class Real, class Columns>
HWY_INLINE void add_token(ColumnSums<2>& sum, const Real* dy, const Real* x, const Statistics& s,
                          int64_t C, Columns columns) {
  const Vec m = broadcast(s.mean), r = broadcast(s.rstd);
  columns.each([&](int64_t part, int64_t i, auto io) {
    ask_for_later_row(dy + i, C);
    ask_for_later_row(x + i, C);
    const Vec d = io.load(dy + i);
    const Vec xhat = hn::Mul(hn::Sub(io.load(x + i), m), r);
    sum.at(0, part) = hn::MulAdd(d, xhat, sum.at(0, part));
    sum.at(1, part) = hn::Add(sum.at(1, part), d);
  });
}

}  // namespace

void norm_forward(const Ctx& ctx, Tensor out, Tensor mean, Tensor rstd, Tensor inp, Tensor w,
                  Tensor b) {
  const Extents s = check_shapes(Op::norm_forward, out, mean, rstd, inp, w, b);
  float* means = mean.data<float>();  // may be null
  float* rstds = rstd.data<float>();
  dispatch_out(out, {inp}, [&]<class Real, class Wide>(Real, Wide) {
    Real* y = out.data<Real>();
    const Real* x = inp.data<Real>();
    const Real* weight = w.data<Real>();
    const Real* bias = b.data<Real>();
    const auto rows_from = [&]<size_t N>(int64_t first, std::integral_constant<size_t, N>) {
      const int64_t at = first * s.C;
      const auto all = forward<Wide, N>(y + at, x + at, weight, bias, s.C, means != nullptr);
      for (const Statistics& found : all) {
        if (means) means[first] = found.mean;
        rstds[first] = found.rstd;
        ++first;
      }
    };
    parallel_for(ctx, s.B * s.T, 1, s.C, [&](Range range) {
      constexpr std::integral_constant<size_t, kRowsAtOnce> kSome;
      constexpr std::integral_constant<size_t, 1> kOne;
      int64_t row = range.begin;
      for (; row + int64_t{kSome} <= range.end; row += int64_t{kSome}) rows_from(row, kSome);
      for (; row < range.end; ++row) rows_from(row, kOne);
    });
  });
}

void norm_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor inp, Tensor w,
                         Tensor mean, Tensor rstd) {
  const Extents s = check_shapes(Op::norm_backward_input, dinp, dout, inp, w, mean, rstd);
  const float *means = mean.data<float>(), *rstds = rstd.data<float>();
  dispatch_out(dinp, {dout, inp}, [&]<class Real, class Wide>(Real, Wide) {
    Real* dx = dinp.data<Real>();
    const Real* dy = dout.data<Real>();
    const Real* x = inp.data<Real>();
    const Real* weight = w.data<Real>();
    parallel_for(ctx, s.B * s.T, 1, 2 * s.C, [&](Range range) {
      for (int64_t row = range.begin; row < range.end; ++row)
        backward_input<Wide>(dx + row * s.C, dy + row * s.C, x + row * s.C, weight,
                             statistics_of(row, means, rstds), s.C, means != nullptr);
    });
  });
}

void norm_backward_weight(const Ctx& ctx, Tensor dw, Tensor db, Tensor dout, Tensor inp,
                          Tensor mean, Tensor rstd, Into into) {
  const Extents s = check_shapes(Op::norm_backward_weight, dw, db, dout, inp, mean, rstd);
  float* dweight = dw.data<float>();
  float* dbias = db.data<float>();  // may be null
  const float *means = mean.data<float>(), *rstds = rstd.data<float>();
  dispatch(inp, [&]<class Real>(Real) {
    const Real* dy = dout.data<Real>();
    const Real* x = inp.data<Real>();
    parallel_for(ctx, s.C, kColumns, s.B * s.T, [&](Range range) {
      sum_columns<2>(
          range, {ctx.token_chunks, sequences_of(ctx, s.B, s.T)},
          [=](ColumnSums<2>& sum, int64_t row, int64_t c, auto columns) {
            const int64_t at = row * s.C + c;
            add_token(sum, dy + at, x + at, statistics_of(row, means, rstds), s.C, columns);
          },
          [=](ColumnSums<2>& sums, int64_t c, auto columns) {
            put_columns(dweight + c, sums, 0, columns, into);
            if (dbias) put_columns(dbias + c, sums, 1, columns, into);
          });
    });
  });
}

}  // namespace ladder::cpu
