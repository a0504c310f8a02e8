// Declares the operations of the ref table. Formulas and shapes are in kernels/kernels.h.
#pragma once

#include <type_traits>

#include "kernels/kernels.h"

namespace ladder::ref {

// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration, not an expression
#define LADDER_OPERATION(op, operands) std::remove_pointer_t<decltype(Kernels::op)> op;
#include "kernels/operations.inc"

}  // namespace ladder::ref
