// The ref table: plain loops over float or double, the specification of every operation.
#include <cstddef>
#include <iterator>
#include <limits>

#include "kernels/ref/any_dtype.h"
#include "kernels/ref/ops.h"

namespace ladder {
namespace {

constexpr Kernels make_table() {
  Kernels table{
      .name = "ref",
      .scratch_bytes = 0,
      .max_head = std::numeric_limits<int64_t>::max(),
#define LADDER_OPERATION(op, operands) .op = ref::AnyDtype<ref::op>::call,
#include "kernels/operations.inc"
  };
  // cast rounds by its own rules. The others take no narrow operands.
  table.cast = ref::cast;
  table.gelu_forward_codes = ref::gelu_forward_codes;
  table.gelu_backward_codes = ref::gelu_backward_codes;
  table.squared_norm = ref::squared_norm;
  table.adaptive_clip = ref::adaptive_clip;
  table.sgd_update = ref::sgd_update;
  table.adamw_update = ref::adamw_update;
  table.lion_update = ref::lion_update;
  table.adafactor_update = ref::adafactor_update;
  table.adamw8bit_update = ref::adamw8bit_update;
  return table;
}

// GCC refuses a table that lacks an operation; Clang 14 does not. So the names are counted, too.
#define LADDER_OPERATION(op, operands) #op,
constexpr const char* kNames[] = {
#include "kernels/operations.inc"
};
static_assert(offsetof(Kernels, embed_forward) +
                      std::size(kNames) * sizeof(Kernels::embed_forward) ==
                  sizeof(Kernels),
              "kernels/operations.inc lacks an operation of kernels/kernels.h");

}  // namespace

const Kernels& ref_kernels() {
  static constexpr Kernels kTable = make_table();
  return kTable;
}

}  // namespace ladder
