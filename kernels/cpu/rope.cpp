// Rotary positions: one pass over queries and keys, in place. All heads of a token use the same
// angles.
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/table.h"
#include "kernels/documents.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// Turns one head of one token. x (HS); angles (HS): cosines, then sines
template <class Real>
HWY_INLINE void turn(Real* x, const float* angles, int64_t half, bool back) {
  for_vectors(0, half, [=](int64_t i, auto io) {
    const Vec first = io.load(x + i), second = io.load(x + half + i);
    const Vec c = io.load(angles + i), forth = io.load(angles + half + i);
    const Vec s = back ? hn::Neg(forth) : forth;
    io.store(hn::MulSub(first, c, hn::Mul(second, s)), x + i);
    io.store(hn::MulAdd(second, c, hn::Mul(first, s)), x + half + i);
  });
}

}  // namespace

void rope(const Ctx& ctx, Tensor qkv, Tensor angles, int64_t heads, bool back) {
  const Extents s = check_shapes(Op::rope, qkv, angles, heads);
  const Positions positions = positions_of(ctx, s.B, s.T);
  const int64_t turned = s.NH / s.NKV + 1, width = s.NKV * (turned + 1) * s.HS;
  const float* table = angles.data<float>();
  dispatch(qkv, [&]<class Real>(Real) {
    Real* rows = qkv.data<Real>();
    parallel_for(ctx, s.B * s.T, 1, width, [=](Range range) {
      for (int64_t row = range.begin; row < range.end; ++row)
        for (int64_t group = 0; group < s.NKV; ++group) {
          Real* head = rows + row * width + group * (turned + 1) * s.HS;
          for (int64_t i = 0; i < turned; ++i, head += s.HS)
            turn(head, table + positions[row] * s.HS, s.HS / 2, back);
        }
    });
  });
}

}  // namespace ladder::cpu
