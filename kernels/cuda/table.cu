// The table of the CUDA kernels.
#include "kernels/cuda/table.h"

/// The value of a macro, as text.
#define LADDER_TEXT_OF(macro) LADDER_TEXT(macro)
#define LADDER_TEXT(text) #text

namespace ladder::LADDER_CUDA {

const Kernels& kernels() {
  static constexpr Kernels table = {
      .name = LADDER_TEXT_OF(LADDER_CUDA),
      .scratch_bytes = kScratchBytes,
      .max_head = kMaxHead,
      .transposes_fp8 = true,
#define LADDER_OPERATION(op, operands) .op = op,
#include "kernels/operations.inc"
  };
  return table;
}

}  // namespace ladder::LADDER_CUDA
