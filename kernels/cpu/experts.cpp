// The rows of experts: sorting them, filling them from tokens, combining them into tokens again.
// The products over them are in gemm/matmul.cpp.
#include "kernels/experts.h"

#include <cstring>

#include "kernels/cpu/columns.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// Combines the rows of a token's experts, as a tree over experts, in the columns that y points at.
/// row, expert (k); weight (k) or null
template <class Real, class Columns>
ColumnSums<1> combine(const Real* y, int64_t C, const int32_t* row, const int32_t* expert,
                      const float* weight, int64_t k, Columns columns) {
  SparseTreeSum<ColumnSums<1>> tree;
  for (int64_t j = 0; j < k; ++j) {
    if (row[j] == kNoRow) continue;
    const Real* from = y + row[j] * C;
    ColumnSums<1> sums = ColumnSums<1>::nothing();
    columns.each([&](int64_t part, int64_t i, auto io) {
      const Vec x = io.load(from + i);
      sums.at(0, part) = weight ? hn::Mul(broadcast(weight[j]), x) : x;
    });
    tree.push(expert[j], sums);
  }
  return tree.take(ColumnSums<1>::nothing());
}

}  // namespace

void expert_rows(const Ctx&, const ExpertRows& rows, Tensor expert, int64_t capacity) {
  const Extents s = check_shapes(Op::expert_rows, rows, expert, capacity);
  check_experts(expert, s.E, /*elsewhere=*/true);
  sort_by_expert(rows, expert, capacity);
}

void gather_rows(const Ctx& ctx, Tensor out, Tensor inp, const ExpertRows& rows) {
  const Extents s = check_shapes(Op::gather_rows, out, inp, rows);
  check_offsets(rows, s.M);
  const int64_t bytes = s.C * size_of(inp.dtype);
  const auto* from = static_cast<const char*>(inp.host());
  auto* to = static_cast<char*>(out.host());
  const int32_t* pair = rows.from.data<int32_t>();
  parallel_for(ctx, rows.offsets.data<int32_t>()[s.E], 1, s.C, [=](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row)
      std::memcpy(to + row * bytes, from + pair[row] / s.k * bytes, static_cast<size_t>(bytes));
  });
}

void unpermute_forward(const Ctx& ctx, Tensor out, Tensor y, const ExpertRows& rows, Tensor expert,
                       Tensor weight) {
  const Extents s = check_shapes(Op::unpermute_forward, out, y, rows, expert, weight);
  const int32_t *row = rows.row.data<int32_t>(), *e = expert.data<int32_t>();
  const float* w = weight.data<float>();
  dispatch(y, [&]<class From>(From) {
    dispatch(out, [&]<class To>(To) {
      const From* from = y.data<From>();
      To* to = out.data<To>();
      parallel_for(ctx, s.B * s.T, 1, s.k * s.C, [=](Range range) {
        for (int64_t token = range.begin; token < range.end; ++token) {
          const int64_t first = token * s.k;
          for_columns({0, s.C}, [&](int64_t c, auto columns) {
            ColumnSums<1> sums = combine(from + c, s.C, row + first, e + first,
                                         w ? w + first : nullptr, s.k, columns);
            columns.each([&](int64_t part, int64_t i, auto io) {
              io.store(sums.at(0, part), to + token * s.C + c + i);
            });
          });
        }
      });
    });
  });
}

void unpermute_backward(const Ctx& ctx, Tensor dy, Tensor dweight, Tensor dout, Tensor y,
                        const ExpertRows& rows, Tensor weight) {
  const Extents s = check_shapes(Op::unpermute_backward, dy, dweight, dout, y, rows, weight);
  const int32_t* row = rows.row.data<int32_t>();
  const float* w = weight.data<float>();
  float* dw = dweight.data<float>();
  dispatch(y, [&]<class Real>(Real) {
    const Real *d = dout.data<Real>(), *from = y.data<Real>();
    Real* to = dy.data<Real>();
    parallel_for(ctx, s.B * s.T * s.k, 1, 3 * s.C, [=](Range range) {
      for (int64_t pair = range.begin; pair < range.end; ++pair) {
        dw[pair] = 0;
        if (row[pair] == kNoRow) continue;
        const Real *of = d + pair / s.k * s.C, *x = from + row[pair] * s.C;
        Real* dx = to + row[pair] * s.C;
        dw[pair] = lane_sum(s.C, [&](int64_t c, auto io) {
          const Vec above = io.load(of + c), terms = hn::Mul(above, io.load(x + c));
          io.store(hn::Mul(broadcast(w[pair]), above), dx + c);
          return terms;
        });
      }
    });
  });
}

}  // namespace ladder::cpu
