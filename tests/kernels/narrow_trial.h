// Operations that are tried in a 16-bit dtype and in F32 on the same values.
#pragma once

#include <functional>
#include <vector>

#include "tests/kernels/testing.h"

namespace ladder::test {

/// One trial of an operation, in a 16-bit dtype or in F32 on the same values.
class Trial {
 public:
  Trial(Sandbox& box, Dtype dtype) : box_(box), dtype_(dtype) {}

  const Kernels& k() const { return box_.kernels(); }
  const Ctx& ctx() const { return box_.ctx(); }
  /// x in the dtype of this trial.
  Tensor in(const Tensor& x) { return converted(x, box_.empty(dtype_, x.shape)); }
  /// x in FP8 with a scale if this trial is narrow.
  Tensor fp8(const Tensor& x, Dtype format) {
    if (dtype_ == Dtype::F32) return in(x);
    Tensor y = box_.empty(format, x.shape);
    y.fp8 = x.fp8;
    return converted(x, y);
  }
  Tensor out(Shape shape) { return box_.empty(dtype_, shape); }
  /// Statistics and gradients of parameters.
  Tensor sums(Shape shape) {
    const Tensor x = box_.empty(Dtype::F32, shape);
    for (int64_t i = 0; i < x.size(); ++i) set(x, i, 0.25 * static_cast<double>(i % 7));
    return x;
  }

 private:
  static Tensor converted(const Tensor& from, const Tensor& to) {
    for (int64_t i = 0; i < from.size(); ++i) set(to, i, at(from, i));
    return to;
  }
  Sandbox& box_;
  Dtype dtype_;
};

using Outputs = std::vector<Tensor>;
struct Op {
  const char* name;
  std::function<Outputs(Trial)> run;  ///< returns what it wrote
  bool product = false;               ///< of two factors in the trial's dtype
  bool of_fp8 = false;                ///< or in FP8
};

}  // namespace ladder::test
