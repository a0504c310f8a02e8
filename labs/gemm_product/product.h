// C = A B^T on a processor that counts (machine.h). labs/gemm_product/README.md says what is
// counted.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "labs/gemm_product/machine.h"

namespace ladder::lab {

// yours: members and functions that you add
// end of yours

/// C[m,n] = sum over k of A[m,k] B[n,k]: from 0, k ascending, each step one multiply_add.
inline void product(Machine& machine) { throw std::logic_error("product is not written yet"); }

}  // namespace ladder::lab
