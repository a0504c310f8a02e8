// The operations of kernels/kernels.h on a GPU. Each file has one family of them.
#pragma once

#include <type_traits>

#include "kernels/cuda/backend.h"

namespace ladder::LADDER_CUDA {

/// All of Ctx::scratch: host threads do not divide it. It limits the workspace of a matrix product
/// with its widened FP8 factors, and the sums of partial results.
constexpr int64_t kScratchBytes = 64 << 20;
/// The most channels of a head, because attention keeps rows of them in registers.
constexpr int64_t kMaxHead = 128;

/// Declares a function for each operation, of the type that its pointer in Kernels has.
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration, not an expression
#define LADDER_OPERATION(op, operands) std::remove_pointer_t<decltype(Kernels::op)> op;
#include "kernels/operations.inc"

}  // namespace ladder::LADDER_CUDA
