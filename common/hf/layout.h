// Parameters as the Hugging Face model of the same family stores them. None has rows of padding.
//
// GPT-2: linear layers are Conv1D, so weights lie transposed, (in, out). c_attn has all q, then all
// k, then all v, where ours goes head by head.
//
// LLaMA: linear layers lie as ours. What is one matrix here is several there: q_proj, k_proj and
// v_proj, of whose rows ours has those of a group together; gate_proj and up_proj, whose rows
// alternate in ours. Pairs that RoPE turns are HS/2 apart in both.
//
// Mixtral: as LLaMA, and each expert's gate, up and down projections are w1, w3 and w2.
//
// A mixture of parts is no model there: its parameters lie as ours.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/model/layout.h"

namespace ladder {

/// A tensor in a file.
struct HfTensor {
  std::string name;
  Shape shape;
};

/// Those that hold a parameter.
std::vector<HfTensor> hf_tensors(const ParamSpec& spec, const GptConfig& config);

/// hf = ours, in the layout of the file. hf F32, each of hf_tensors(); ours F32 spec.shape
void to_hf(std::span<const Tensor> hf, Tensor ours, const ParamSpec& spec, const GptConfig& config);

/// ours = hf. Rows of padding are not touched.
void from_hf(Tensor ours, std::span<const Tensor> hf, const ParamSpec& spec,
             const GptConfig& config);

}  // namespace ladder
