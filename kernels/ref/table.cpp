// The ref table: plain loops over float or double, the specification of every operation.
#include <limits>

#include "kernels/ref/any_dtype.h"
#include "kernels/ref/ops.h"

namespace ladder {

using ref::AnyDtype;

const Kernels& ref_kernels() {
  static constexpr Kernels kTable{
      .name = "ref",
      .scratch_bytes = 0,
      .max_head = std::numeric_limits<int64_t>::max(),
      .embed_forward = AnyDtype<ref::embed_forward>::call,
      .embed_backward = AnyDtype<ref::embed_backward>::call,
      .norm_forward = AnyDtype<ref::norm_forward>::call,
      .norm_backward_input = AnyDtype<ref::norm_backward_input>::call,
      .norm_backward_weight = AnyDtype<ref::norm_backward_weight>::call,
      .matmul_forward = AnyDtype<ref::matmul_forward>::call,
      .matmul_backward_input = AnyDtype<ref::matmul_backward_input>::call,
      .matmul_backward_weight = AnyDtype<ref::matmul_backward_weight>::call,
      .bias_backward = AnyDtype<ref::bias_backward>::call,
      .gelu_forward = AnyDtype<ref::gelu_forward>::call,
      .gelu_backward = AnyDtype<ref::gelu_backward>::call,
      .swiglu_forward = AnyDtype<ref::swiglu_forward>::call,
      .swiglu_backward = AnyDtype<ref::swiglu_backward>::call,
      .route_forward = AnyDtype<ref::route_forward>::call,
      .route_backward = AnyDtype<ref::route_backward>::call,
      .expert_rows = AnyDtype<ref::expert_rows>::call,
      .gather_rows = AnyDtype<ref::gather_rows>::call,
      .grouped_matmul_forward = AnyDtype<ref::grouped_matmul_forward>::call,
      .grouped_matmul_backward_input = AnyDtype<ref::grouped_matmul_backward_input>::call,
      .grouped_matmul_backward_weight = AnyDtype<ref::grouped_matmul_backward_weight>::call,
      .combine_forward = AnyDtype<ref::combine_forward>::call,
      .combine_backward = AnyDtype<ref::combine_backward>::call,
      .rope = AnyDtype<ref::rope>::call,
      .attention_forward = AnyDtype<ref::attention_forward>::call,
      .attention_backward = AnyDtype<ref::attention_backward>::call,
      .attention_piece_forward = AnyDtype<ref::attention_piece_forward>::call,
      .attention_merge = AnyDtype<ref::attention_merge>::call,
      .attention_finish = AnyDtype<ref::attention_finish>::call,
      .attention_piece_backward = AnyDtype<ref::attention_piece_backward>::call,
      .copy_columns = AnyDtype<ref::copy_columns>::call,
      .residual_forward = AnyDtype<ref::residual_forward>::call,
      .add = AnyDtype<ref::add>::call,
      .cast = ref::cast,
      .scale = AnyDtype<ref::scale>::call,
      .cross_entropy = AnyDtype<ref::cross_entropy>::call,
      .softmax_max = AnyDtype<ref::softmax_max>::call,
      .softmax_sum = AnyDtype<ref::softmax_sum>::call,
      .softmax_loss = AnyDtype<ref::softmax_loss>::call,
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
