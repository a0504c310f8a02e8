// The ref table: plain loops over float or double, the specification of every operation.
#include "kernels/ref/ops.h"

namespace ladder {

const Kernels& ref_kernels() {
  static constexpr Kernels kTable{
      .name = "ref",
      .scratch_bytes = 0,
      .embed_forward = ref::embed_forward,
      .embed_backward = ref::embed_backward,
      .norm_forward = ref::norm_forward,
      .norm_backward_input = ref::norm_backward_input,
      .norm_backward_weight = ref::norm_backward_weight,
      .matmul_forward = ref::matmul_forward,
      .matmul_backward_input = ref::matmul_backward_input,
      .matmul_backward_weight = ref::matmul_backward_weight,
      .bias_backward = ref::bias_backward,
      .gelu_forward = ref::gelu_forward,
      .gelu_backward = ref::gelu_backward,
      .attention_forward = ref::attention_forward,
      .attention_backward = ref::attention_backward,
      .join_forward = ref::join_forward,
      .add = ref::add,
      .scale = ref::scale,
      .cross_entropy = ref::cross_entropy,
      .squared_norm = ref::squared_norm,
      .adaptive_clip = ref::adaptive_clip,
      .sgd_update = ref::sgd_update,
      .adamw_update = ref::adamw_update,
      .lion_update = ref::lion_update,
      .adafactor_update = ref::adafactor_update,
      .adamw8bit_update = ref::adamw8bit_update,
  };
  return kTable;
}

}  // namespace ladder
