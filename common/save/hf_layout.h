// Parameters as the Hugging Face model of the same family stores them, without rows of padding.
//
// GPT-2: linear layers are Conv1D, so weights are stored transposed, (in, out). c_attn has all q,
// then all k, then all v; ours goes head by head.
//
// LLaMA: linear layers are stored as ours. Some of our matrices are several there. q_proj, k_proj
// and v_proj are one matrix here, with the rows of a group together. gate_proj and up_proj are one
// matrix here, whose rows alternate. RoPE turns pairs that are HS/2 apart in both.
//
// Mixtral: as LLaMA. The gate, up and down projections of an expert are w1, w3 and w2.
//
// A mixture of parts has no model there. Its parameters are stored as ours.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/model/layout.h"

namespace ladder {

/// A tensor as a file of Hugging Face has it.
struct HfTensor {
  std::string name;
  Shape shape;
};

/// The tensors that hold a parameter.
std::vector<HfTensor> hf_tensors(const ParamSpec& spec, const GptConfig& config);

/// Whether the file has a parameter of (rows, K) as (K, rows).
bool is_transposed(const ParamSpec& spec, const GptConfig& config);

/// A row of a tensor in the file. Where the tensor is transposed, it is a column there.
struct HfRow {
  size_t tensor;  ///< which of hf_tensors()
  int64_t row;
};
/// Where the file has row `row` of a parameter.
HfRow hf_row(const ParamSpec& spec, const GptConfig& config, int64_t row);

/// hf = ours. @param hf F32, as hf_tensors() says
void to_hf(std::span<const Tensor> hf, Tensor ours, const ParamSpec& spec, const GptConfig& config);

/// ours = hf. Rows of padding do not change.
void from_hf(Tensor ours, std::span<const Tensor> hf, const ParamSpec& spec,
             const GptConfig& config);

}  // namespace ladder
