// One element of an Adam step, for 32-bit and 8-bit states.
#pragma once

#include <cmath>

#include "kernels/kernels.h"

namespace ladder::ref {

/// Updates w, m and v with gradient g: arXiv 1412.6980, algorithm 1; decay as in arXiv 1711.05101.
template <class Real>
void adam_step(Real& w, Real& m, Real& v, Real g, const AdamStep& step) {
  const Real lr = step.lr, decay = step.weight_decay;
  if (step.decoupled)
    w -= lr * decay * w;
  else
    g += decay * w;
  m = Real(step.beta1) * m + (1 - Real(step.beta1)) * g;
  v = Real(step.beta2) * v + (1 - Real(step.beta2)) * g * g;
  // m and v start at zero, so they are too small at first. The corrections undo that.
  w -= lr * (m / Real(step.correction1)) / (std::sqrt(v / Real(step.correction2)) + Real(step.eps));
}

}  // namespace ladder::ref
