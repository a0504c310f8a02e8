// The operations of kernels/kernels.h with threads and SIMD, one family a file.
#pragma once

#include <type_traits>

#include "kernels/kernels.h"

namespace ladder::cpu {

/// For each thread. It bounds the blocks of a product, the sequence length of attention, the tokens
/// of one call of embed_backward, of a router and of a loss, and the rows of adafactor.
constexpr int64_t kScratchBytes = 8 << 20;

// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration, not an expression
#define LADDER_OPERATION(op) std::remove_pointer_t<decltype(Kernels::op)> op;
#include "kernels/operations.inc"

}  // namespace ladder::cpu
