// The dtype of a kernel's activations, chosen at run time.
#pragma once

#include "kernels/narrow.h"
#include "kernels/tensor.h"

namespace ladder {

/// Calls f(T{}) with the element type of the tensor: float, Bf16 or F16.
///     dispatch(inp, [&]<class T>(T) { ... inp.data<T>() ... });
template <class F>
void dispatch(const Tensor& tensor, F&& f) {
  switch (tensor.dtype) {
    case Dtype::F32: return f(float{});
    case Dtype::BF16: return f(Bf16{});
    case Dtype::F16: return f(F16{});
    default: CHECK(false, "cpu computes on F32, BF16 and F16");
  }
}

}  // namespace ladder
