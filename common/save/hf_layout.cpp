#include "common/save/hf_layout.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ladder {
namespace {

bool is_qkv(const ParamSpec& spec) {
  return spec.role == Role::Qkv || spec.role == Role::QkvBias || spec.role == Role::AdapterQkvB;
}

bool is_llama(const GptConfig& config) {
  return family(config) == Family::Llama || family(config) == Family::Mixtral;
}

bool is_adapter_b(const ParamSpec& spec) {
  return spec.role == Role::AdapterB || spec.role == Role::AdapterQkvB ||
         spec.role == Role::AdapterGateUpB;
}

using Layers = std::map<std::string, std::vector<std::pair<const char*, int64_t>>>;

/// The layers of ours that are several of theirs, and the rows of each.
Layers stacked_layers(const GptConfig& config) {
  if (!is_llama(config)) return {};
  const int64_t kv = config.groups() * config.head_size(), F = config.expert_inner();
  return {
      {"qkv_proj", {{"q_proj", config.channels}, {"k_proj", kv}, {"v_proj", kv}}},
      {"gate_up_proj", {{"gate_proj", F}, {"up_proj", F}}},
      {"w13", {{"w1", F}, {"w3", F}}},
  };
}

// Row ((r + 2) g + j) HS + d of ours is channel d of group g: of query j if j < r, of the key if j
// = r, of the value if j = r + 1.
HfRow qkv_row(const GptConfig& config, int64_t row) {
  const int64_t HS = config.head_size(), r = config.heads / config.groups();
  const int64_t g = row / ((r + 2) * HS), j = row / HS % (r + 2), d = row % HS;
  if (is_llama(config))
    return j < r ? HfRow{0, (g * r + j) * HS + d}
                 : HfRow{static_cast<size_t>(j - r + 1), g * HS + d};
  return {0, j * config.channels + g * HS + d};  // r is 1
}

/// The columns of B that belong to the layer that its row is of.
template <class F>
void for_each_of_b(const ParamSpec& spec, const GptConfig& config, F f) {
  const int64_t r = config.adapter_rank;
  for (int64_t row = 0; row < spec.rows; ++row) {
    const HfRow theirs = hf_row(spec, config, row);
    const int64_t first = row * spec.shape.dims[1] + static_cast<int64_t>(theirs.tensor) * r;
    for (int64_t k = 0; k < r; ++k) f(first + k, theirs.tensor, theirs.row * r + k);
  }
}

// Calls f(index in ours, tensor of theirs, index in theirs) for every element that is no padding.
template <class F>
void for_each_element(const ParamSpec& spec, const GptConfig& config, F f) {
  if (is_adapter_b(spec)) return for_each_of_b(spec, config, f);
  const bool conv1d = is_transposed(spec, config);
  const int64_t K = spec.is_matrix() ? spec.shape.dims[1] : 1;
  const int64_t stride_row = conv1d ? 1 : K, stride_k = conv1d ? spec.rows : 1;
  for (int64_t row = 0; row < spec.rows; ++row) {
    const HfRow theirs = hf_row(spec, config, row);
    for (int64_t k = 0; k < K; ++k)
      f(row * K + k, theirs.tensor, theirs.row * stride_row + k * stride_k);
  }
}

}  // namespace

std::vector<HfTensor> hf_tensors(const ParamSpec& spec, const GptConfig& config) {
  if (!spec.is_matrix()) return {{spec.name, {spec.rows}}};
  const int64_t K = spec.shape.dims[1], r = config.adapter_rank;
  std::vector<HfTensor> parts;
  for (const auto& [ours, theirs] : stacked_layers(config)) {
    const size_t at = spec.name.find(ours);
    if (at == spec.name.npos) continue;
    for (const auto& [name, rows] : theirs)
      parts.push_back({std::string(spec.name).replace(at, ours.size(), name),
                       {spec.role == Role::AdapterA ? r : rows, is_adapter_b(spec) ? r : K}});
  }
  if (!parts.empty()) return parts;
  return {{spec.name, is_transposed(spec, config) ? Shape{K, spec.rows} : Shape{spec.rows, K}}};
}

// Adapters never are: peft keeps them as torch.nn.Linear does, for GPT-2, too.
bool is_transposed(const ParamSpec& spec, const GptConfig& config) {
  return family(config) == Family::Gpt2 &&
         (spec.role == Role::Matrix || spec.role == Role::Projection || spec.role == Role::Qkv);
}

HfRow hf_row(const ParamSpec& spec, const GptConfig& config, int64_t row) {
  if (family(config) == Family::Mixture) return {0, row};
  if (spec.role == Role::AdapterA) {
    const int64_t r = config.adapter_rank;
    return {static_cast<size_t>(row / r), row % r};
  }
  if (is_qkv(spec)) return qkv_row(config, row);
  if (spec.role == Role::GateUp || spec.role == Role::AdapterGateUpB)
    return {static_cast<size_t>(row % 2), row / 2};
  return {0, row};
}

void to_hf(std::span<const Tensor> hf, Tensor ours, const ParamSpec& spec,
           const GptConfig& config) {
  const float* inp = ours.data<float>();
  for_each_element(spec, config, [&](int64_t i, size_t which, int64_t j) {
    hf[which].data<float>()[j] = inp[i];
  });
}

void from_hf(Tensor ours, std::span<const Tensor> hf, const ParamSpec& spec,
             const GptConfig& config) {
  float* out = ours.data<float>();
  if (is_adapter_b(spec)) std::fill_n(out, ours.size(), 0.0f);
  for_each_element(spec, config, [&](int64_t i, size_t which, int64_t j) {
    out[i] = hf[which].data<float>()[j];
  });
}

}  // namespace ladder
