// For CPUs without a BF16 instruction. Every product widens its factors to FP32.
#include "kernels/check.h"
#include "kernels/cpu/gemm/bf16.h"

namespace ladder {

bool multiplies_pairs(const Product&) { return false; }

TileShape tile_of_pairs() { return {}; }

void rectangle_of_pairs(const Product&, Range, Range, std::span<std::byte>) {
  CHECK(false, "this CPU does not multiply pairs of BF16");
}

}  // namespace ladder
