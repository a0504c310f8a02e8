// The forward and backward pass of one block, as the chapters write them out.
#pragma once

#include "common/model/activations.h"
#include "common/model/parts.h"

namespace ladder::test {

/// Block l of the weights `w` from its input on.
inline void forward_block(const Ctx& ctx, const GptTensors& w, const Activations& a, int64_t l) {
  const BlockTensors& p = w.blocks[static_cast<size_t>(l)];
  const BlockActs& s = a.blocks[static_cast<size_t>(l)];
  norm_forward(ctx, s.norm1, s.stat1, a.stream(l), p.norm1);
  attn_forward(ctx, a.product, s.attn, s.norm1, p.attn);
  residual_forward(ctx, s.mid, a.stream(l), a.product, p.residual1_b);
  norm_forward(ctx, s.norm2, s.stat2, s.mid, p.norm2);
  mlp_forward(ctx, a.product, s.mlp, s.norm2, p.mlp);
  residual_forward(ctx, s.out, s.mid, a.product, p.residual2_b);
}

/// Gradients of block l in `dw`.
inline void backward_block(const Ctx& ctx, const GptTensors& dw, const GptTensors& w,
                           const Activations& a, const ActGrads& d, int64_t l) {
  const BlockTensors& p = w.blocks[static_cast<size_t>(l)];
  const BlockTensors& g = dw.blocks[static_cast<size_t>(l)];
  const BlockActs& s = a.blocks[static_cast<size_t>(l)];
  residual_backward_weight(ctx, g.residual2_b, d.stream, Into::Write);
  mlp_backward_input(ctx, d.branch, d.mlp, d.stream, s.mlp, p.mlp);
  mlp_backward_weight(ctx, g.mlp, d.mlp, d.stream, s.norm2, s.mlp, Into::Write);
  norm_backward_input(ctx, d.norm, d.branch, s.mid, s.stat2, p.norm2);
  norm_backward_weight(ctx, g.norm2, d.branch, s.mid, s.stat2, Into::Write);
  residual_backward_input(ctx, d.stream, d.norm);
  residual_backward_weight(ctx, g.residual1_b, d.stream, Into::Write);
  attn_backward_input(ctx, d.branch, d.attn, d.stream, s.attn, p.attn);
  attn_backward_weight(ctx, g.attn, d.attn, d.stream, s.norm1, s.attn, Into::Write);
  norm_backward_input(ctx, d.norm, d.branch, a.stream(l), s.stat1, p.norm1);
  norm_backward_weight(ctx, g.norm1, d.branch, a.stream(l), s.stat1, Into::Write);
  residual_backward_input(ctx, d.stream, d.norm);
}

}  // namespace ladder::test
