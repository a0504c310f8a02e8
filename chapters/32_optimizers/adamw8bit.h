// 8-bit AdamW: AdamW that stores each element of its moments as one byte (arXiv 2110.02861).
//
// Each block of 64 neighbors has one FP32 scale, which is its largest magnitude. A byte is the
// index of one of 256 values in [-1, 1] (for v: [0, 1]). The values lie closer together near zero,
// so small moments keep their leading digits. A step widens a block to FP32, does what AdamW does,
// and narrows the block again. Parameters start at multiples of 64, so no block has parts of two.
#pragma once

#include <cstdint>
#include <vector>

#include "chapters/02_adamw/adamw.h"

namespace ladder {

class AdamW8bit {
 public:
  AdamW8bit(Arena& arena, const ParamLayout& layout, const AdamWOptions& options)
      : layout_(&layout),
        options_(options),
        m_(alloc(arena, "m", layout)),
        v_(alloc(arena, "v", layout)) {}

  /// Bytes of Optim: two bytes per parameter and two FP32 scales per block, (2 + 8 / 64) P.
  static int64_t bytes(const ParamLayout& layout) {
    return 2 * layout.size() + 8 * div_exact(layout.size(), kQuantBlock);
  }

  /// Update t (from 1) of all parameters. params, grads F32.
  void step(const Ctx& ctx, const Flat& params, const Flat& grads, float lr, int64_t t) {
    for (const ParamSpec& spec : layout_->specs()) {
      const int64_t at = spec.offset, n = spec.part.size();
      const int64_t blocks = round_up(n, kQuantBlock) / kQuantBlock;
      const auto scales = [&](Tensor all) { return all.slice(div_exact(at, kQuantBlock), blocks); };
      const auto part = [&](const Flat& flat) { return layout_->tensor(flat, spec).view({n}); };
      ctx.kernels->adamw8bit_update(ctx, part(params), part(m_.code), scales(m_.scale),
                                    part(v_.code), scales(v_.scale), part(grads),
                                    options_.step_of(spec, lr, t, /*decoupled=*/true));
    }
  }

  std::vector<NamedTensor> tensors() const {
    return {
        {"m", m_.code.tensor}, {"m.scale", m_.scale}, {"v", v_.code.tensor}, {"v.scale", v_.scale}};
  }

 private:
  /// A moment: codes U8 (n) and scales F32 (n / kQuantBlock). If its scale is 0, a block is all 0.
  struct Moment {
    Flat code;
    Tensor scale;
  };
  static Moment alloc(Arena& arena, const std::string& name, const ParamLayout& layout) {
    const int64_t n = layout.size();
    return {
        .code = layout.own(arena.zeros(Mem::Optim, name, Dtype::U8, {n})),
        .scale = arena.zeros(Mem::Optim, name + ".scale", Dtype::F32, {div_exact(n, kQuantBlock)})};
  }

  const ParamLayout* layout_;
  AdamWOptions options_;
  Moment m_, v_;
};

}  // namespace ladder
