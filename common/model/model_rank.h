// Which part of the model a rank has: of each layer, of the experts, and of the depth.
#pragma once

#include <cstdint>

#include "kernels/check.h"
#include "kernels/tree.h"

namespace ladder {

/// A rank among those that split the tensors of each layer.
struct TensorRank {
  int64_t rank = 0;
  int64_t size = 1;
};

/// A rank among those that split the experts of each block. Each has neighboring experts.
struct ExpertRank {
  int64_t rank = 0;
  int64_t size = 1;

  /// The experts of this rank, if there are `count` in all.
  Range experts(int64_t count) const {
    const int64_t each = div_exact(count, size);
    return {rank * each, (rank + 1) * each};
  }
};

/// A stage among those that split the depth. Each stage has `chunks` model chunks of neighboring
/// blocks. Model chunk g of all stages belongs to stage g % size. The embedding goes with the first
/// one, the head with the last.
struct StageRank {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t chunks = 1;

  /// The model chunks of all stages together.
  int64_t parts() const { return size * chunks; }
  /// The blocks of this stage's model chunk number `chunk`. The model has `layers` blocks.
  Range blocks(int64_t layers, int64_t chunk) const {
    const int64_t each = div_exact(layers, parts()), g = chunk * size + rank;
    return {g * each, (g + 1) * each};
  }
  bool has_embed() const { return rank == 0; }
  bool has_block(int64_t l, int64_t layers) const {
    return l / div_exact(layers, parts()) % size == rank;
  }
  bool has_head() const { return rank == size - 1; }
};

}  // namespace ladder
