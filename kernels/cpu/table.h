// The operations of kernels/kernels.h with threads and SIMD. Each file has one family of them.
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
