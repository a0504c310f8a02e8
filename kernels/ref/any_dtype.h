// What an operation means for narrow tensors: widen its operands to float, compute in float, and
// round once what it wrote. Which narrow dtypes may be combined is not checked here.
#pragma once

#include <deque>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/narrow.h"

namespace ladder::ref {

/// The narrow operands of one call, copied to float.
class WidenedOperands {
 public:
  /// A float copy of a narrow tensor; other arguments pass unchanged. If the same tensor comes
  /// twice (an operation in place), it gets one copy.
  Tensor widened(const Tensor& tensor) {
    if (!tensor || !is_narrow(tensor.dtype)) return tensor;
    for (Copy& copy : copies_)
      if (copy.original.ptr == tensor.ptr) {
        CHECK(copy.original.size() == tensor.size(),
              "two operands of different sizes in one place");
        return copy.view(tensor.shape);
      }
    Copy& copy = copies_.emplace_back(tensor);
    return copy.view(tensor.shape);
  }
  template <class Other>
  const Other& widened(const Other& other) {
    return other;
  }

  /// Rounds all copies back, except FP8: FP8 operands are only read. Another operand that was only
  /// read rounds to itself (apart from the payload of a NaN).
  void round() {
    for (Copy& copy : copies_)
      if (!is_fp8(copy.original.dtype)) narrow_all(copy.original, copy.values);
  }

  /// out = values times `scale`, rounded to its dtype.
  static void narrow_all(const Tensor& out, const std::vector<float>& values, float scale = 1) {
    const Format& format = format_of(out.dtype);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t code = narrow(format, values[i] * scale, overflow_of(out.dtype));
      if (size_of(out.dtype) == 2)
        static_cast<uint16_t*>(out.ptr)[i] = static_cast<uint16_t>(code);
      else
        static_cast<uint8_t*>(out.ptr)[i] = static_cast<uint8_t>(code);
    }
  }

 private:
  struct Copy {
    explicit Copy(const Tensor& tensor)
        : original(tensor), values(static_cast<size_t>(tensor.size())) {
      const Format& format = format_of(tensor.dtype);
      values.reserve(1);  // without elements it is still a tensor, not null
      const float inverse = 1.0f / (tensor.fp8 ? tensor.fp8->scale : 1.0f);
      for (size_t i = 0; i < values.size(); ++i) {
        const uint32_t code = size_of(tensor.dtype) == 2
                                  ? static_cast<const uint16_t*>(tensor.ptr)[i]
                                  : static_cast<const uint8_t*>(tensor.ptr)[i];
        values[i] = widen(format, code) * inverse;
      }
    }
    Tensor view(const Shape& shape) {
      return {.ptr = values.data(), .dtype = Dtype::F32, .shape = shape};
    }

    Tensor original;
    std::vector<float> values;
  };

  std::deque<Copy> copies_;  // a deque, because views point into its elements
};

/// AnyDtype<op>::call does what op does, and takes narrow operands, too.
template <auto Op>
struct AnyDtype;

template <class... Args, void (*Op)(const Ctx&, Args...)>
struct AnyDtype<Op> {
  static void call(const Ctx& ctx, Args... args) {
    WidenedOperands operands;
    Op(ctx, operands.widened(args)...);
    operands.round();
  }
};

}  // namespace ladder::ref
