// Sums of arrays and a factor: one pass over memory each.
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {

void join_forward(const Ctx& ctx, Tensor out, Tensor residual, Tensor product, Tensor bias) {
  const auto [rows, C] = check_join_forward(out, residual, product, bias);
  float* y = out.data<float>();
  const float* r = residual.data<float>();
  const float* p = product.data<float>();
  const float* b = bias.data<float>();
  parallel_for(ctx, rows, 1, C, [&, C = C](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row)
      for_vectors(0, C, [&](int64_t c, auto io) {
        const int64_t i = row * C + c;
        const Vec sum = hn::Add(io.load(p + i), io.load(b + c));
        io.store(hn::Add(io.load(r + i), sum), y + i);
      });
  });
}

void add(const Ctx& ctx, Tensor out, Tensor a, Tensor b) {
  const int64_t n = check_add(out, a, b);
  float* y = out.data<float>();
  const float* left = a.data<float>();
  const float* right = b.data<float>();
  parallel_for(ctx, n, kAlign, 1, [&](Range range) {
    for_vectors(range.begin, range.end, [&](int64_t i, auto io) {
      io.store(hn::Add(io.load(left + i), io.load(right + i)), y + i);
    });
  });
}

void scale(const Ctx& ctx, Tensor x, float factor) {
  const int64_t n = check_scale(x);
  float* y = x.data<float>();
  parallel_for(ctx, n, kAlign, 1, [&](Range range) {
    for_vectors(range.begin, range.end, [&](int64_t i, auto io) {
      io.store(hn::Mul(io.load(y + i), broadcast(factor)), y + i);
    });
  });
}

}  // namespace ladder::cpu
