// The arithmetic of one step of Adam or AdamW on a vector of weights.
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/kernels.h"

namespace ladder {

/// A vector of weights, and of both moments.
struct AdamVectors {
  Vec w, m, v;
};

/// The equations of Kernels::adamw_update.
HWY_INLINE AdamVectors adam_step(AdamVectors x, Vec g, const AdamStep& step) {
  if (step.decoupled)
    x.w = hn::NegMulAdd(broadcast(step.lr * step.weight_decay), x.w, x.w);
  else
    g = hn::MulAdd(broadcast(step.weight_decay), x.w, g);
  x.m = hn::MulAdd(broadcast(step.beta1), x.m, hn::Mul(broadcast(1 - step.beta1), g));
  x.v = hn::MulAdd(broadcast(step.beta2), x.v, hn::Mul(hn::Mul(broadcast(1 - step.beta2), g), g));
  const Vec root = hn::Sqrt(hn::Mul(x.v, broadcast(1 / step.correction2)));
  const Vec move = hn::Mul(x.m, broadcast(step.lr / step.correction1));
  x.w = hn::Sub(x.w, hn::Div(move, hn::Add(root, broadcast(step.eps))));
  return x;
}

}  // namespace ladder
