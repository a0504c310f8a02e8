// Numbers that were computed in double, for checks in which a formula may be written in any way.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/arena.h"
#include "kernels/tensor.h"
#include "labs/check.h"

namespace ladder::lab {

/// Numbers of a tensor of doubles, rounded to FP32: what differs by the order of operations alone
/// is the same here. What should be zero may be a little beside it, so the smallest count as zero.
inline std::vector<float> rounded(const Tensor& x) {
  constexpr double kZero = 1e-12;
  std::vector<float> values;
  for (int64_t i = 0; i < x.size(); ++i) {
    const double value = x.data<double>()[i];
    values.push_back(std::abs(value) < kZero ? 0.0f : static_cast<float>(value));
  }
  return values;
}

/// A tensor of normal numbers, F64.
inline Tensor drawn_double(const Sheet& sheet, Arena& arena, std::string_view name, Shape shape) {
  const Tensor x = arena.zeros(Mem::Workspace, "lab", Dtype::F64, shape);
  std::ranges::copy(sheet.normals(name, x.size()), x.data<double>());
  return x;
}

}  // namespace ladder::lab
