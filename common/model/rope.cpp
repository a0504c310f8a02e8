#include "common/model/rope.h"

#include <numbers>
#include <vector>

#include "kernels/check.h"
#include "kernels/math.h"

namespace ladder {

double rope_frequency(const Rope& rope, int64_t i, int64_t head_size) {
  const double part = 2 * static_cast<double>(i) / static_cast<double>(head_size);
  const double frequency = 1 / math::pow(rope.theta, part);
  if (rope.factor == 1) return frequency;
  const double turns = static_cast<double>(rope.original) * frequency / (2 * std::numbers::pi);
  if (turns < rope.low) return frequency / rope.factor;
  if (turns > rope.high) return frequency;
  const double share = (turns - rope.low) / (rope.high - rope.low);
  return (1 - share) * (frequency / rope.factor) + share * frequency;
}

void fill_angles(const Arena& arena, Tensor angles, const Rope& rope, int64_t first) {
  const int64_t T = angles.dim(0), HS = angles.dim(1), half = div_exact<int64_t>(HS, 2);
  std::vector<float> rows(static_cast<size_t>(T * HS));
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = rope_frequency(rope, i, HS);
    for (int64_t t = 0; t < T; ++t) {
      const double angle = static_cast<double>(first + t) * frequency;
      const auto at = static_cast<size_t>(t * HS + i);
      rows[at] = static_cast<float>(math::cos(angle));
      rows[at + static_cast<size_t>(half)] = static_cast<float>(math::sin(angle));
    }
  }
  arena.write(angles, rows.data());
}

}  // namespace ladder
