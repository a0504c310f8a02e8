// Flat buffers: whole ones, and those of a shard. Two types, so that one cannot be taken for the
// other.
//
// A whole flat buffer is a Tensor of ParamLayout::whole_size() elements. A rank that holds only a
// shard has a Shard. A function that makes sense for one of them takes that type. A function that
// reads the parameters of a layout in either (an optimizer, a norm, a checkpoint) takes a Flat.
#pragma once

#include "kernels/tensor.h"

namespace ladder {

/// A flat buffer that holds only a shard: chunk r of every section, one after the other.
struct Shard {
  explicit Shard(Tensor chunks) : tensor(chunks) {}

  Tensor tensor;
};

/// A flat buffer of either type. In a whole one, the layout of a shard finds its own chunks.
struct Flat {
  Flat(Tensor whole = {}) : tensor(whole) {}
  Flat(const Shard& shard) : tensor(shard.tensor), is_shard(true) {}

  /// The same type of buffer in other memory.
  Flat copied_to(Tensor other) const { return is_shard ? Flat(Shard(other)) : Flat(other); }

  Tensor tensor;
  bool is_shard = false;
};

}  // namespace ladder
