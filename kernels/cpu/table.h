// The operations of kernels/kernels.h with threads and SIMD. Each file has one family of them.
//
// They stand on a few headers, in this order: vec.h (vectors of floats), simd.h (walking over
// arrays with them), parallel.h (threads), dispatch.h (dtypes), lanes.h (sums along a row),
// columns.h (sums over tokens). elementwise.cpp and norm.cpp show all of these at work. Products
// have a folder, gemm/, with a reading order of its own.
#pragma once

#include <type_traits>

#include "kernels/kernels.h"

namespace ladder::cpu {

/// Scratch per thread. It limits the blocks of a product, the sequence length of attention, the
/// rows of adafactor, and the tokens in a call of embed_backward, of a router or of a loss.
constexpr int64_t kScratchBytes = 8 << 20;

// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration, not an expression
#define LADDER_OPERATION(op, operands) std::remove_pointer_t<decltype(Kernels::op)> op;
#include "kernels/operations.inc"

}  // namespace ladder::cpu
