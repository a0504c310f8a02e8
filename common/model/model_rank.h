// Which part of the model a rank has: of each layer, of its experts, and of the layers.
#pragma once

#include <cstdint>

#include "kernels/check.h"
#include "kernels/tree.h"

namespace ladder {

/// One of how many ranks that share each layer's tensors.
struct TensorRank {
  int64_t rank = 0;
  int64_t size = 1;
};

/// One of how many ranks that share the experts of each block: each has a run of neighbors.
struct ExpertRank {
  int64_t rank = 0;
  int64_t size = 1;

  /// Its experts, of `count` in all.
  Range experts(int64_t count) const {
    const int64_t each = div_exact(count, size);
    return {rank * each, (rank + 1) * each};
  }
};

/// One of the stages that share the layers. Each has `chunks` parts of neighboring blocks: part g
/// of all belongs to stage g % size. The embedding goes with the first part, the head with the
/// last.
struct StageRank {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t chunks = 1;

  /// Parts of all stages.
  int64_t parts() const { return size * chunks; }
  /// Blocks of its part number `chunk`, of L in all.
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
