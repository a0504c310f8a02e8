// Rotary positions: the angle by which each pair of channels of a query or a key is turned.
//
// Pair i of HS / 2 turns by t theta^(-2i/HS) at token t (arXiv 2104.09864). A query and a key then
// meet at an angle that depends on their distance alone. To stretch a model to longer texts than it
// was trained on, Llama 3.1 slows down what turns slowly: a pair that turns less than `low` times
// in `original` positions turns `factor` times slower, one that turns more than `high` times as
// before, and between the two is a blend.
//
// Frequencies and angles are double, and rounded once. In FP32 an angle of 100,000 is off by up to
// 0.004, in BF16 by more than a turn.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace ladder {

/// Of which speed each pair is.
struct Rope {
  double theta = 10000;
  double factor = 1;  ///< 1: no pair is slower than theta says
  double low = 1;     ///< turns in `original` positions
  double high = 4;
  int64_t original = 8192;  ///< positions that the model was first trained on

  bool operator==(const Rope&) const = default;
};

/// Radians that pair i of head_size / 2 turns from one token to the next.
double rope_frequency(const Rope& rope, int64_t i, int64_t head_size);

/// Row i: the cosines of the angles of token first + i, pair by pair, and then their sines.
/// @param angles F32 (tokens, head_size), in memory of the host
void fill_angles(Tensor angles, const Rope& rope, int64_t first = 0);

}  // namespace ladder
