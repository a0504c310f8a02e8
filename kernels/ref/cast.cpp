// Conversion from one floating-point format to another.
#include <cmath>
#include <vector>

#include "kernels/ref/any_dtype.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {

void cast(const Ctx&, Tensor out, Tensor inp) {
  const int64_t n = check_shapes(Op::cast, out, inp).R;
  WidenedOperands operands;
  const float* x = operands.widened(inp).data<float>();
  std::vector<float> values(x, x + n);
  if (out.fp8)
    for (float value : values) out.fp8->amax = larger(out.fp8->amax, std::abs(value));
  if (is_narrow(out.dtype))
    WidenedOperands::narrow_all(out, values, out.fp8 ? out.fp8->scale : 1.0f);
  else
    std::copy(values.begin(), values.end(), out.data<float>());
}

}  // namespace ladder::ref
