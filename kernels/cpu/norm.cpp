// Layer norm. A row's statistics are sums in 16 lanes, two passes: first the mean, then the
// squares of what is left, which cancels nothing.
#include <cmath>

#include "kernels/cpu/columns.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

constexpr float kEpsilon = 1e-5f;

struct Statistics {
  float mean, rstd;
};

Statistics statistics(const float* x, int64_t C) {
  const auto extent = static_cast<float>(C);
  const float mean = lane_sum(C, [&](int64_t c, auto io) { return io.load(x + c); }) / extent;
  const float squares = lane_sum(C, [&](int64_t c, auto io) {
    const Vec centred = io.only(hn::Sub(io.load(x + c), broadcast(mean)));
    return hn::Mul(centred, centred);
  });
  return {.mean = mean, .rstd = 1.0f / std::sqrt(squares / extent + kEpsilon)};
}

}  // namespace

void norm_forward(const Ctx& ctx, Tensor out, Tensor mean, Tensor rstd, Tensor inp, Tensor w,
                  Tensor b) {
  const auto [B, T, C] = check_norm_forward(out, mean, rstd, inp, w, b);
  const float* weight = w.data<float>();
  const float* bias = b.data<float>();
  float* means = mean.data<float>();
  float* rstds = rstd.data<float>();
  const float* from = inp.data<float>();
  float* to = out.data<float>();
  parallel_for(ctx, B * T, 1, C, [&, C = C](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      const float* x = from + row * C;
      float* y = to + row * C;
      const Statistics s = statistics(x, C);
      means[row] = s.mean;
      rstds[row] = s.rstd;
      for_vectors(0, C, [&](int64_t c, auto io) {
        const Vec xhat = hn::Mul(hn::Sub(io.load(x + c), broadcast(s.mean)), broadcast(s.rstd));
        io.store(hn::MulAdd(xhat, io.load(weight + c), io.load(bias + c)), y + c);
      });
    }
  });
}

void norm_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor inp, Tensor w,
                         Tensor mean, Tensor rstd) {
  const auto [B, T, C] = check_norm_backward_input(dinp, dout, inp, w, mean, rstd);
  const float* weight = w.data<float>();
  const float* means = mean.data<float>();
  const float* rstds = rstd.data<float>();
  const float* from = inp.data<float>();
  const float* above = dout.data<float>();
  float* to = dinp.data<float>();
  parallel_for(ctx, B * T, 1, 2 * C, [&, C = C](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      const float* x = from + row * C;
      const float* dy = above + row * C;
      float* dx = to + row * C;
      const Vec m = broadcast(means[row]);
      const Vec r = broadcast(rstds[row]);
      const auto xhat = [&](int64_t c, auto io) { return hn::Mul(hn::Sub(io.load(x + c), m), r); };
      const auto g = [&](int64_t c, auto io) {
        return hn::Mul(io.load(dy + c), io.load(weight + c));
      };
      LaneAcc sum_g(zero());
      LaneAcc sum_gx(zero());
      for_lanes(C, [&](int64_t part, int64_t c, auto io) {
        const Vec gc = g(c, io);
        sum_g[part] = hn::Add(sum_g[part], gc);
        sum_gx[part] = hn::MulAdd(gc, xhat(c, io), sum_gx[part]);
      });
      const auto extent = static_cast<float>(C);
      const Vec mean_g = broadcast(sum_g.sum() / extent);
      const Vec mean_gx = broadcast(sum_gx.sum() / extent);
      for_vectors(0, C, [&](int64_t c, auto io) {
        const Vec rest = hn::NegMulAdd(xhat(c, io), mean_gx, hn::Sub(g(c, io), mean_g));
        io.store(hn::Mul(r, rest), dx + c);
      });
    }
  });
}

void norm_backward_weight(const Ctx& ctx, Tensor dw, Tensor db, Tensor dout, Tensor inp,
                          Tensor mean, Tensor rstd, Into into) {
  const auto [B, T, C] = check_norm_backward_weight(dw, db, dout, inp, mean, rstd);
  float* dweight = dw.data<float>();
  float* dbias = db.data<float>();
  const float* above = dout.data<float>();
  const float* from = inp.data<float>();
  const float* means = mean.data<float>();
  const float* rstds = rstd.data<float>();
  parallel_for(ctx, C, kColumns, B * T, [&, B = B, T = T, C = C](Range range) {
    for (int64_t c = range.begin; c < range.end; c += kColumns) {
      const int64_t count = std::min(kColumns, range.end - c);
      auto sums = sum_tokens<2>(B, T, [&](ColumnSums<2>& sum, int64_t row) {
        const float* dy = above + row * C + c;
        const float* x = from + row * C + c;
        for_columns(count, [&](int64_t part, int64_t i, auto io) {
          const Vec d = io.load(dy + i);
          const Vec centred = hn::Sub(io.load(x + i), broadcast(means[row]));
          const Vec xhat = hn::Mul(centred, broadcast(rstds[row]));
          sum.at(0, part) = hn::MulAdd(d, xhat, sum.at(0, part));
          sum.at(1, part) = hn::Add(sum.at(1, part), d);
        });
      });
      put_columns(dweight + c, sums, 0, count, into);
      put_columns(dbias + c, sums, 1, count, into);
    }
  });
}

}  // namespace ladder::cpu
