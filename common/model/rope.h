// Rotary positions: the angles by which pairs of channels of queries and keys are turned.
//
// At token t, pair i of HS / 2 is turned by t theta^(-2i/HS) (arXiv 2104.09864). So the product of
// a query and a key depends only on the distance of their tokens. Llama 3.1 stretches a model to
// longer texts than it was first trained on, by slowing down slow pairs. A pair that makes fewer
// than `low` turns in `original` positions becomes `factor` times slower. A pair that makes more
// than `high` turns stays as it is. Pairs in between get a blend of both.
//
// Frequencies and angles are computed in double, and rounded once. In FP32 an angle of 100,000
// would be off by up to 0.004, in BF16 by more than a turn.
#pragma once

#include <cstdint>

#include "kernels/arena.h"

namespace ladder {

/// How fast each pair turns.
struct Rope {
  double theta = 10000;
  double factor = 1;  ///< how much slower slow pairs turn; 1: not slower
  double low = 1;     ///< turns in `original` positions
  double high = 4;
  int64_t original = 8192;  ///< positions for which the model was first trained
};

/// By how many radians pair i of head_size / 2 turns from one token to the next.
double rope_frequency(const Rope& rope, int64_t i, int64_t head_size);

/// Row i holds the cosines of the angles of token first + i, pair by pair, and then their sines.
/// @param angles F32 (tokens, head_size), of that arena or on the host
void fill_angles(const Arena& arena, Tensor angles, const Rope& rope, int64_t first = 0);

}  // namespace ladder
