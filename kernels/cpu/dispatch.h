// Chooses, at run time, among variants of a kernel's inner loop: by the dtype of activations, and
// by whether a large output is stored past the caches.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "kernels/cpu/simd.h"
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

/// From this size on, the caches hold little of an output by the time it is read.
constexpr int64_t kBeyondCaches = 32 << 20;

/// Whether it pays to store `out` past the caches. The kernel must be bound by memory, and must
/// compute `out` from `inputs` row by row. It does not pay if `out` takes the place of an input,
/// whose lines are read anyway. Rows must be whole vectors.
inline bool goes_past_caches(const Tensor& out, std::initializer_list<Tensor> inputs) {
  const auto replaced = [&](const Tensor& input) { return input.ptr == out.ptr; };
  return (out.dtype == Dtype::F32 || out.dtype == Dtype::BF16) && out.bytes() >= kBeyondCaches &&
         rows_are_vectors(out.ptr, out.dim(-1), size_of(out.dtype)) &&
         std::none_of(inputs.begin(), inputs.end(), replaced);
}

/// dispatch(out), but f also gets Wide, a Whole or a PastCaches: for_vectors<Wide> stores whole
/// vectors of out in that way.
///     dispatch_out(out, {inp}, [&]<class T, class Wide>(T, Wide) { ... out.data<T>() ... });
template <class F>
void dispatch_out(const Tensor& out, std::initializer_list<Tensor> inputs, F&& f) {
  const bool past_caches = goes_past_caches(out, inputs);
  dispatch(out, [&]<class T>(T element) {
    if constexpr (!std::is_same_v<T, F16>)
      if (past_caches) return f(element, PastCaches{});
    f(element, Whole{});
  });
}

}  // namespace ladder
