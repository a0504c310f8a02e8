// One step of Adafactor: the second moment of a matrix as a factor per row and a factor per column.
// The shape alone fixes the order of every sum: 16 lanes along a row, and along a column the order
// of a bias gradient (columns.h).
#include <cmath>

#include "kernels/cpu/columns.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// What the passes over a matrix share. A vector is a matrix of one row, and has no `col`.
struct Problem {
  int64_t R, N;
  float *w, *row, *col;
  const float* g;
  const AdafactorStep& step;

  float blend(float old, float fresh) const { return step.beta2 * old + (1 - step.beta2) * fresh; }
};

/// row = beta2 row + (1 - beta2) mean_n q
void update_rows(const Ctx& ctx, const Problem& p) {
  parallel_for(ctx, p.R, 1, p.N, [&](Range range) {
    for (int64_t r = range.begin; r < range.end; ++r) {
      const float* g = p.g + r * p.N;
      const float sum = lane_sum(p.N, [&](int64_t n, auto io) {
        const Vec slope = io.load(g + n);
        return io.only(hn::MulAdd(slope, slope, broadcast(p.step.eps)));
      });
      p.row[r] = p.blend(p.row[r], sum / static_cast<float>(p.N));
    }
  });
}

/// col = beta2 col + (1 - beta2) mean_r q
void update_columns(const Ctx& ctx, const Problem& p) {
  parallel_for(ctx, p.N, kColumns, p.R, [&](Range range) {
    sum_columns<1>(
        range, {kTokenChunks, {1, p.R}},
        [&](ColumnSums<1>& sum, int64_t r, int64_t n, auto columns) {
          const float* g = p.g + r * p.N + n;
          columns.each([&](int64_t part, int64_t i, auto io) {
            ask_for_later_row(g + i, p.N);
            const Vec slope = io.load(g + i);
            const Vec q = hn::MulAdd(slope, slope, broadcast(p.step.eps));
            sum.at(0, part) = hn::Add(sum.at(0, part), q);
          });
        },
        [&](ColumnSums<1>& sums, int64_t n, auto columns) {
          columns.each([&](int64_t part, int64_t i, auto io) {
            float* col = p.col + n + i;
            const Vec mean = hn::Mul(sums.at(0, part), broadcast(1 / static_cast<float>(p.R)));
            const Vec kept = hn::Mul(broadcast(p.step.beta2), io.load(col));
            io.store(hn::MulAdd(broadcast(1 - p.step.beta2), mean, kept), col);
          });
        });
  });
}

/// u before clipping: g / sqrt(row col / mean(row)), or g / sqrt(row) for a vector. The root of
/// each factor is taken by itself: where gradients are zero, the product of both is eps^2 = 1e-60.
template <class Io>
HWY_INLINE Vec direction(const Problem& p, int64_t r, int64_t n, Io io, float inverse_mean) {
  const Vec g = io.load(p.g + r * p.N + n);
  if (!p.col) return hn::Div(g, hn::Sqrt(io.load(p.row + n)));
  const Vec scaled = hn::Mul(g, broadcast(1 / std::sqrt(p.row[r] * inverse_mean)));
  return hn::Div(scaled, hn::Sqrt(io.load(p.col + n)));
}

}  // namespace

void adafactor_update(const Ctx& ctx, Tensor param, Tensor row, Tensor col, Tensor grad,
                      const AdafactorStep& step) {
  const Extents s = check_shapes(Op::adafactor_update, param, row, col, grad);
  const Problem p{.R = s.R,
                  .N = s.N,
                  .w = param.data<float>(),
                  .row = row.data<float>(),
                  .col = col ? col.data<float>() : nullptr,
                  .g = grad.data<float>(),
                  .step = step};
  float inverse_mean = 1;
  if (p.col) {
    update_rows(ctx, p);
    update_columns(ctx, p);
    const float sum = lane_sum(s.R, [&](int64_t r, auto io) { return io.load(p.row + r); });
    inverse_mean = static_cast<float>(s.R) / sum;
  } else {
    for_vectors(0, s.N, [&](int64_t n, auto io) {
      const Vec slope = io.load(p.g + n);
      const Vec q = hn::MulAdd(slope, slope, broadcast(step.eps));
      io.store(hn::MulAdd(broadcast(step.beta2), io.load(p.row + n),
                          hn::Mul(broadcast(1 - step.beta2), q)),
               p.row + n);
    });
  }
  const std::span<float> squares = shared_scratch<float>(ctx, s.R);
  parallel_for(ctx, s.R, 1, 4 * s.N, [&](Range range) {
    for (int64_t r = range.begin; r < range.end; ++r)
      squares[static_cast<size_t>(r)] = lane_sum(p.N, [&](int64_t n, auto io) {
        const Vec u = io.only(direction(p, r, n, io, inverse_mean));
        return hn::Mul(u, u);
      });
  });
  const float total =
      lane_sum(s.R, [&](int64_t r, auto io) { return io.load(squares.data() + r); });
  const float rms = std::sqrt(total / static_cast<float>(s.R * s.N));
  const Vec shrink = broadcast(1 / std::max(1.0f, rms / step.clip));
  parallel_for(ctx, s.R, 1, 4 * s.N, [&](Range range) {
    for (int64_t r = range.begin; r < range.end; ++r)
      for_vectors(0, p.N, [&](int64_t n, auto io) {
        float* w = p.w + r * p.N + n;
        const Vec u = hn::Mul(direction(p, r, n, io, inverse_mean), shrink);
        const Vec decayed = hn::MulAdd(broadcast(step.weight_decay), io.load(w), u);
        io.store(hn::NegMulAdd(broadcast(step.lr), decayed, io.load(w)), w);
      });
  });
}

}  // namespace ladder::cpu
