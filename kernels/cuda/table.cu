// The table of the CUDA kernels.
#include "kernels/cuda/table.h"

/// The text of a macro's value.
#define LADDER_TEXT_OF(macro) LADDER_TEXT(macro)
#define LADDER_TEXT(text) #text

namespace ladder::LADDER_CUDA {

const Kernels& kernels() {
  static constexpr Kernels table = {
      .name = LADDER_TEXT_OF(LADDER_CUDA),
      .scratch_bytes = kScratchBytes,
      .max_head = kMaxHead,
      .embed_forward = embed_forward,
      .embed_backward = embed_backward,
      .norm_forward = norm_forward,
      .norm_backward_input = norm_backward_input,
      .norm_backward_weight = norm_backward_weight,
      .matmul_forward = matmul_forward,
      .matmul_backward_input = matmul_backward_input,
      .matmul_backward_weight = matmul_backward_weight,
      .bias_backward = bias_backward,
      .gelu_forward = gelu_forward,
      .gelu_backward = gelu_backward,
      .swiglu_forward = swiglu_forward,
      .swiglu_backward = swiglu_backward,
      .route_forward = route_forward,
      .route_backward = route_backward,
      .expert_rows = expert_rows,
      .gather_rows = gather_rows,
      .grouped_matmul_forward = grouped_matmul_forward,
      .grouped_matmul_backward_input = grouped_matmul_backward_input,
      .grouped_matmul_backward_weight = grouped_matmul_backward_weight,
      .combine_forward = combine_forward,
      .combine_backward = combine_backward,
      .rope = rope,
      .attention_forward = attention_forward,
      .attention_backward = attention_backward,
      .attention_piece_forward = attention_piece_forward,
      .attention_merge = attention_merge,
      .attention_finish = attention_finish,
      .attention_piece_backward = attention_piece_backward,
      .copy_columns = copy_columns,
      .residual_forward = residual_forward,
      .add = add,
      .cast = cast,
      .scale = scale,
      .cross_entropy = cross_entropy,
      .softmax_max = softmax_max,
      .softmax_sum = softmax_sum,
      .softmax_loss = softmax_loss,
      .squared_norm = squared_norm,
      .adaptive_clip = adaptive_clip,
      .sgd_update = sgd_update,
      .adamw_update = adamw_update,
      .lion_update = lion_update,
      .adafactor_update = adafactor_update,
      .adamw8bit_update = adamw8bit_update,
  };
  return table;
}

}  // namespace ladder::LADDER_CUDA
