// The table of the cpu kernels.
#include "kernels/cpu/table.h"

#include <limits>

namespace ladder {

const Kernels& cpu_kernels() {
  static constexpr Kernels table = {
      .name = "cpu",
      .scratch_bytes = cpu::kScratchBytes,
      .max_head = std::numeric_limits<int64_t>::max(),
      .embed_forward = cpu::embed_forward,
      .embed_backward = cpu::embed_backward,
      .norm_forward = cpu::norm_forward,
      .norm_backward_input = cpu::norm_backward_input,
      .norm_backward_weight = cpu::norm_backward_weight,
      .matmul_forward = cpu::matmul_forward,
      .matmul_backward_input = cpu::matmul_backward_input,
      .matmul_backward_weight = cpu::matmul_backward_weight,
      .bias_backward = cpu::bias_backward,
      .gelu_forward = cpu::gelu_forward,
      .gelu_backward = cpu::gelu_backward,
      .swiglu_forward = cpu::swiglu_forward,
      .swiglu_backward = cpu::swiglu_backward,
      .route_forward = cpu::route_forward,
      .route_backward = cpu::route_backward,
      .expert_rows = cpu::expert_rows,
      .gather_rows = cpu::gather_rows,
      .grouped_matmul_forward = cpu::grouped_matmul_forward,
      .grouped_matmul_backward_input = cpu::grouped_matmul_backward_input,
      .grouped_matmul_backward_weight = cpu::grouped_matmul_backward_weight,
      .combine_forward = cpu::combine_forward,
      .combine_backward = cpu::combine_backward,
      .rope = cpu::rope,
      .attention_forward = cpu::attention_forward,
      .attention_backward = cpu::attention_backward,
      .attention_piece_forward = cpu::attention_piece_forward,
      .attention_merge = cpu::attention_merge,
      .attention_finish = cpu::attention_finish,
      .attention_piece_backward = cpu::attention_piece_backward,
      .copy_columns = cpu::copy_columns,
      .residual_forward = cpu::residual_forward,
      .add = cpu::add,
      .cast = cpu::cast,
      .scale = cpu::scale,
      .cross_entropy = cpu::cross_entropy,
      .softmax_max = cpu::softmax_max,
      .softmax_sum = cpu::softmax_sum,
      .softmax_loss = cpu::softmax_loss,
      .squared_norm = cpu::squared_norm,
      .adaptive_clip = cpu::adaptive_clip,
      .sgd_update = cpu::sgd_update,
      .adamw_update = cpu::adamw_update,
      .lion_update = cpu::lion_update,
      .adafactor_update = cpu::adafactor_update,
      .adamw8bit_update = cpu::adamw8bit_update,
  };
  return table;
}

}  // namespace ladder
