// Products of BF16 with an instruction for them, where the CPU has one. CMake compiles
// bf16_amx.cpp, bf16_dpbf16.cpp or bf16_no_pairs.cpp. Both instructions take two neighboring k as
// one word. They treat factors, sums and results below 2^-126 in size as zero.
//
// VDPBF16PS (AVX-512) first adds the term in the upper half of a word, then the term in the lower
// half, each as a fused multiply-add. So with the earlier k in the upper half, a sum has the bits
// of the FP32 path, except for tiny numbers.
//
// TDPBF16PS (AMX) takes 32 values of k at a time, counted from the start of a leaf, or of either
// chunk of a folded leaf. It adds up the 16 terms of even place by fused multiply-adds from +0, and
// likewise the 16 terms of odd place. It adds the two sums, and adds the result to the sum of the
// leaf, which begins at +0. This order within a leaf is another one, but it is just as fixed.
//
// A leaf or chunk that does not fill its last step ends with products of zeros. These change only a
// sum that is -0: it becomes +0. Whether that happens depends on the leaf alone.
#pragma once

#include "kernels/cpu/gemm/blocks.h"
#include "kernels/cpu/gemm/gemm.h"

namespace ladder {

/// BF16, or FP8: the codes of FP8 are exactly representable in BF16.
inline bool is_bf16_exactly(Dtype dtype) {
  return dtype == Dtype::BF16 || dtype == Dtype::E4M3 || dtype == Dtype::E5M2;
}

/// Whether this CPU has the instruction and both factors are exactly BF16. With AMX, also: K is not
/// 0. Throws if the program was built for AMX but may not use it.
bool multiplies_pairs(const Product& product);

/// The tile of such a product. Threads divide C between tiles.
TileShape tile_of_pairs();

/// Computes the rectangle rows x cols of C of such a product.
void rectangle_of_pairs(const Product& product, Range rows, Range cols,
                        std::span<std::byte> scratch);

}  // namespace ladder
