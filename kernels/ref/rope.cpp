// Rotary positions, arXiv 2104.09864. Queries and keys are turned by angles that grow with the
// token's position. So the product of a query and a key depends only on how far apart the two
// tokens are.
#include <cmath>

#include "kernels/documents.h"
#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {
namespace {

/// Turns one head of one token. x (HS); angles (HS): cosines, then sines
template <class Real>
void turn(int64_t HS, Real* x, const float* angles, bool back) {
  const int64_t half = HS / 2;
  for (int64_t i = 0; i < half; ++i) {
    const Real c = angles[i], s = back ? -angles[half + i] : angles[half + i];
    const Real first = x[i], second = x[half + i];
    x[i] = std::fma(first, c, -(second * s));
    x[half + i] = std::fma(second, c, first * s);
  }
}

}  // namespace

void rope(const Ctx& ctx, Tensor qkv, Tensor angles, int64_t heads, bool back) {
  const Extents s = check_shapes(Op::rope, qkv, angles, heads);
  const Positions positions = positions_of(ctx, s.B, s.T);
  const int64_t turned = s.NH / s.NKV + 1;  // of each group: queries and a key, then a value
  dispatch(qkv, [&]<class Real>(Real) {
    for (int64_t row = 0; row < s.B * s.T; ++row)
      for (int64_t group = 0; group < s.NKV; ++group) {
        const int64_t first = (row * s.NKV + group) * (turned + 1) * s.HS;
        for (int64_t head = 0; head < turned; ++head)
          turn(s.HS, qkv.data<Real>() + first + head * s.HS,
               angles.data<float>() + positions[row] * s.HS, back);
      }
  });
}

}  // namespace ladder::ref
