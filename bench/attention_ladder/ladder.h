// The rungs of the ladder: one operation, attention, written or configured in several ways. BF16,
// heads of 64 channels, each with a key and a value head of its own.
#pragma once

#include <vector>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ladder::bench {

/// out (B,T,NH*64), lse (B,NH,T), qkv and dqkv (B,T,3*NH*64): as kernels.h says.
struct Rung {
  const char* name;
  void (*forward)(const Ctx&, Tensor out, Tensor lse, Tensor qkv);
  /// Null where a rung has none.
  void (*backward)(const Ctx&, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out, Tensor lse);
};

/// In the order of the README; the last is the table's own.
std::vector<Rung> rungs();

}  // namespace ladder::bench
