// Products of BF16 by an instruction of their own, where the CPU has one. CMake compiles
// bf16_amx.cpp, bf16_dpbf16.cpp or bf16_no_pairs.cpp. Both instructions take two neighboring k as
// one word, and factors, sums and results below 2^-126 in size as zero.
//
// VDPBF16PS (AVX-512) adds the term in the upper half of a word first, then the one in the lower
// half, each as a fused multiply-add. So with the earlier k in the upper half a sum has the bits of
// the FP32 path, but for tiny numbers.
//
// TDPBF16PS (AMX) takes 32 values of k at a time, counted from the start of a leaf, or of either
// chunk of a folded one. The 16 terms of
// even place are added up by fused multiply-adds from +0, and so are those of odd place; both are
// added, and then that to the sum of the leaf, which begins at +0. It is another order within a
// leaf, but as fixed.
//
// A leaf, or chunk, ends with products of zeros where it does not fill a step. They change no sum
// but one that is -0, which becomes +0; whether they do depends on the leaf alone.
#pragma once

#include "kernels/cpu/gemm/blocks.h"
#include "kernels/cpu/gemm/gemm.h"

namespace ladder {

/// BF16, and FP8, whose codes are BF16 exactly.
inline bool is_bf16_exactly(Dtype dtype) {
  return dtype == Dtype::BF16 || dtype == Dtype::E4M3 || dtype == Dtype::E5M2;
}

/// Whether this CPU has the instruction and both factors are BF16 exactly; with AMX only where
/// there are values of k and no leaf is absent. Throws if the program was built for AMX and may not
/// use it.
bool multiplies_pairs(const Product& product);

/// The tile of such a product: threads cut C between tiles.
TileShape tile_of_pairs();

/// The rectangle rows x cols of C of such a product.
void rectangle_of_pairs(const Product& product, Range rows, Range cols,
                        std::span<std::byte> scratch);

}  // namespace ladder
