// One step of AdamW with moments that are kept as 8-bit codes. A block is decoded to the stack,
// updated and encoded again.
#include "kernels/cpu/adamw.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantize.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {

void adamw8bit_update(const Ctx& ctx, Tensor param, Tensor m_code, Tensor m_scale, Tensor v_code,
                      Tensor v_scale, Tensor grad, const AdamStep& step) {
  const int64_t n =
      check_shapes(Op::adamw8bit_update, param, m_code, m_scale, v_code, v_scale, grad).N;
  float* w = param.data<float>();
  const float* g = grad.data<float>();
  uint8_t* m_codes = m_code.data<uint8_t>();
  uint8_t* v_codes = v_code.data<uint8_t>();
  float* m_scales = m_scale.data<float>();
  float* v_scales = v_scale.data<float>();
  parallel_for(ctx, n, kQuantBlock, 16, [&](Range range) {
    for (int64_t begin = range.begin; begin < range.end; begin += kQuantBlock) {
      const int64_t count = std::min(kQuantBlock, range.end - begin);
      const int64_t block = begin / kQuantBlock;
      QuantBlock m = dequantize_block<true>(m_codes + begin, m_scales[block], count);
      QuantBlock v = dequantize_block<false>(v_codes + begin, v_scales[block], count);
      for_vectors(0, count, [&](int64_t i, auto io) {
        const AdamVectors next = adam_step(
            {.w = io.load(w + begin + i), .m = io.load(m.data() + i), .v = io.load(v.data() + i)},
            io.load(g + begin + i), step);
        io.store(next.w, w + begin + i);
        io.store(next.m, m.data() + i);
        io.store(next.v, v.data() + i);
      });
      quantize_block<true>(m_codes + begin, m_scales[block], m, count);
      quantize_block<false>(v_codes + begin, v_scales[block], v, count);
    }
  });
}

}  // namespace ladder::cpu
