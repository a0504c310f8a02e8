// AdamW with states that are stored as 8-bit codes. Each block is widened, updated and narrowed
// again.
#include <algorithm>
#include <array>

#include "kernels/quantize.h"
#include "kernels/ref/adam_step.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {

void adamw8bit_update(const Ctx&, Tensor param, Tensor m_code, Tensor m_scale, Tensor v_code,
                      Tensor v_scale, Tensor grad, const AdamStep& step) {
  const int64_t N =
      check_shapes(Op::adamw8bit_update, param, m_code, m_scale, v_code, v_scale, grad).N;
  float *w = param.data<float>(), *g = grad.data<float>();
  for (int64_t begin = 0; begin < N; begin += kQuantBlock) {
    const int64_t count = std::min(kQuantBlock, N - begin), block = begin / kQuantBlock;
    uint8_t *mc = m_code.data<uint8_t>() + begin, *vc = v_code.data<uint8_t>() + begin;
    float &ms = m_scale.data<float>()[block], &vs = v_scale.data<float>()[block];
    std::array<float, kQuantBlock> m, v;
    dequantize_block(kSignedCode, m.data(), mc, ms, count);
    dequantize_block(kUnsignedCode, v.data(), vc, vs, count);
    for (int64_t i = 0; i < count; ++i) adam_step(w[begin + i], m[i], v[i], g[begin + i], step);
    quantize_block(kSignedCode, mc, ms, m.data(), count);
    quantize_block(kUnsignedCode, vc, vs, v.data(), count);
  }
}

}  // namespace ladder::ref
