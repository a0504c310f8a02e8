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

#include <functional>
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

/// The tensors that hold a parameter.
std::vector<HfTensor> hf_tensors(const ParamSpec& spec, const GptConfig& config);

/// Whether the file has a parameter of (rows, K) as (K, rows).
bool is_transposed(const ParamSpec& spec, const GptConfig& config);

/// Elements [begin, begin + run.size()) of tensor number `tensor` of hf_tensors().
using UseHfRun = std::function<void(size_t tensor, int64_t begin, std::span<const float> run)>;

/// Calls use() for the part that a rank has of a parameter which is not transposed, in the order of
/// the files. Neighbors there are one run. Padding is in no run.
/// @param part its elements [spec.part.begin, spec.part.end)
void for_hf_runs(const ParamSpec& spec, const float* part, const GptConfig& config,
                 const UseHfRun& use);

/// n neighbors of a part, from element `here` on. In a range of the file's tensor, which has them
/// transposed, they are elements there, there + rows, there + 2 rows, ...
struct Strip {
  int64_t here, there, n;
};
/// All of a rank's part of a transposed parameter that is in elements `range` of the file's tensor.
/// @param rows of the whole parameter
std::vector<Strip> strips_of(const ParamSpec& spec, const GptConfig& config, int64_t rows,
                             Range range);
/// theirs[there + i rows] = ours[here + i], for all strips. A line of the cache is filled at once.
void turn(std::span<const Strip> strips, const float* ours, int64_t rows, float* theirs);

/// ours = hf. Rows of padding do not change.
void from_hf(Tensor ours, std::span<const Tensor> hf, const ParamSpec& spec,
             const GptConfig& config);

}  // namespace ladder
