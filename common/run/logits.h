// Logits on the host.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/narrow.h"
#include "kernels/tensor.h"

namespace ladder {

/// A row (1,Vp) of logits of any dtype, on the host.
inline std::vector<float> row_of(const Tensor& logits) {
  std::vector<float> row(static_cast<size_t>(logits.size()));
  const auto widened = [&]<class T>(T) {
    const T* from = logits.data<T>();
    std::transform(from, from + row.size(), row.begin(), [](T x) { return value_of(x); });
  };
  switch (logits.dtype) {
    case Dtype::BF16: widened(Bf16{}); break;
    case Dtype::F16: widened(F16{}); break;
    default: widened(float{});
  }
  return row;
}

}  // namespace ladder
