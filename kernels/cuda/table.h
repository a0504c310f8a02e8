// The operations of kernels/kernels.h on a GPU, one family a file.
#pragma once

#include <type_traits>

#include "kernels/cuda/backend.h"

namespace ladder::LADDER_CUDA {

/// Of all of Ctx::scratch: there are no threads of the host to divide it by. It bounds the
/// workspace of a matrix product and what FP8 factors widen to, and the sums of partial results.
constexpr int64_t kScratchBytes = 64 << 20;
/// Most channels of a head: attention keeps rows of them in registers.
constexpr int64_t kMaxHead = 128;

// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration, not an expression
#define LADDER_OPERATION(op) std::remove_pointer_t<decltype(Kernels::op)> op;
#include "kernels/operations.inc"

}  // namespace ladder::LADDER_CUDA
