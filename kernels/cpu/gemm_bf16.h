// Products of BF16 by an instruction of their own, where the CPU has it (VDPBF16PS of AVX-512): two
// terms of 32 sums at a time. CMake compiles gemm_dpbf16.cpp or gemm_no_dpbf16.cpp.
//
// The instruction adds the term in the upper half of a word first, then the one in the lower half,
// each as a fused multiply-add. So with the earlier k in the upper half a sum has the bits of the
// FP32 path, but for one thing: factors, sums and results below 2^-126 in size are taken as zero.
// A leaf of odd length ends with a product of zeros, which changes no sum: none is -0 unless it
// was too small, because leaves begin at +0.
#pragma once

#include "kernels/cpu/gemm.h"
#include "kernels/tree.h"

namespace ladder {

/// Whether this CPU has the instruction and both factors are BF16, or FP8, whose codes are BF16
/// exactly.
bool multiplies_pairs(const Product& product);

/// The rectangle rows x cols of C of such a product.
void rectangle_of_pairs(const Product& product, Range rows, Range cols,
                        std::span<std::byte> scratch);

}  // namespace ladder
