// Flat buffers, whole or of a shard: two types, so that neither is taken for the other.
//
// A whole flat buffer is a Tensor of ParamLayout::whole_size() elements. A rank that holds a shard
// alone has a Shard. What only makes sense of one of them takes that type; what reads the
// parameters of a layout wherever they lie (an optimizer, a norm, a checkpoint) takes a Flat.
#pragma once

#include "kernels/tensor.h"

namespace ladder {

/// A flat buffer that holds a shard alone: chunk r of every section, one after the other.
struct Shard {
  explicit Shard(Tensor chunks) : tensor(chunks) {}

  Tensor tensor;
};

/// A flat buffer of either kind. In a whole one the layout of a shard sees its own chunks.
struct Flat {
  Flat(Tensor whole = {}) : tensor(whole) {}
  Flat(const Shard& shard) : tensor(shard.tensor), is_shard(true) {}

  /// The same in another memory.
  Flat copied_to(Tensor other) const { return is_shard ? Flat(Shard(other)) : Flat(other); }

  Tensor tensor;
  bool is_shard = false;
};

}  // namespace ladder
