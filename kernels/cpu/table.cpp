// The table of the cpu kernels.
#include "kernels/cpu/table.h"

#include <limits>

namespace ladder {

const Kernels& cpu_kernels() {
  static constexpr Kernels table = {
      .name = "cpu",
      .scratch_bytes = cpu::kScratchBytes,
      .max_head = std::numeric_limits<int64_t>::max(),
#define LADDER_OPERATION(op, operands) .op = cpu::op,
#include "kernels/operations.inc"
  };
  return table;
}

}  // namespace ladder
