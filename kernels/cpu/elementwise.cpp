// Sums of arrays, and an array times a factor: one pass over memory each.
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {

void residual_forward(const Ctx& ctx, Tensor out, Tensor residual, Tensor product, Tensor bias) {
  const Extents s = check_shapes(Op::residual_forward, out, residual, product, bias);
  dispatch_out(out, {residual, product}, [&]<class Real, class Wide>(Real, Wide) {
    Real* y = out.data<Real>();
    const Real* r = residual.data<Real>();
    const Real* p = product.data<Real>();
    const Real* b = bias.data<Real>();  // may be null; then -0 is added, which changes no number
    parallel_for(ctx, s.R, 1, s.C, [=](Range range) {
      for (int64_t row = range.begin; row < range.end; ++row)
        for_vectors<Wide>(0, s.C, [=](int64_t c, auto io) {
          const int64_t i = row * s.C + c;
          const Vec sum = hn::Add(io.load(p + i), b ? io.load(b + c) : nothing());
          io.store(hn::Add(io.load(r + i), sum), y + i);
        });
    });
  });
}

void add(const Ctx& ctx, Tensor out, Tensor a, Tensor b) {
  const int64_t n = check_shapes(Op::add, out, a, b).R;
  dispatch_out(out, {a, b}, [&]<class Real, class Wide>(Real, Wide) {
    Real* y = out.data<Real>();
    const Real* left = a.data<Real>();
    const Real* right = b.data<Real>();
    parallel_for(ctx, n, kAlign, 1, [=](Range range) {
      for_vectors<Wide>(range.begin, range.end, [=](int64_t i, auto io) {
        io.store(hn::Add(io.load(left + i), io.load(right + i)), y + i);
      });
    });
  });
}

void scale(const Ctx& ctx, Tensor x, float factor) {
  const int64_t n = check_shapes(Op::scale, x).R;
  dispatch(x, [&]<class Real>(Real) {
    Real* y = x.data<Real>();
    parallel_for(ctx, n, kAlign, 1, [=](Range range) {
      for_vectors(range.begin, range.end, [=](int64_t i, auto io) {
        io.store(hn::Mul(io.load(y + i), broadcast(factor)), y + i);
      });
    });
  });
}

void copy_columns(const Ctx& ctx, Tensor to, int64_t to_column, Tensor from, int64_t from_column,
                  int64_t count) {
  const Extents s = check_shapes(Op::copy_columns, to, to_column, from, from_column, count);
  dispatch(from, [&]<class From>(From) {
    dispatch(to, [&]<class To>(To) {
      const From* x = from.data<From>() + from_column;
      To* y = to.data<To>() + to_column;
      parallel_for(ctx, s.R * s.G, 1, count, [=](Range range) {
        for (int64_t row = range.begin; row < range.end; ++row)
          for_vectors(0, count, [=](int64_t i, auto io) {
            io.store(io.load(x + row * s.M + i), y + row * s.N + i);
          });
      });
    });
  });
}

}  // namespace ladder::cpu
