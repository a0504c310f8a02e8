#include "common/save/hf_layout.h"

namespace ladder {
namespace {

bool is_qkv(const ParamSpec& spec) { return spec.role == Role::Qkv || spec.role == Role::QkvBias; }

bool is_llama(const GptConfig& config) {
  return family(config) == Family::Llama || family(config) == Family::Mixtral;
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

// Calls f(index in ours, tensor of theirs, index in theirs) for every element that is no padding.
template <class F>
void for_each_element(const ParamSpec& spec, const GptConfig& config, F f) {
  const bool conv1d = is_transposed(spec, config);
  const int64_t K = spec.is_matrix() ? spec.shape.dims[1] : 1;
  const int64_t stride_row = conv1d ? 1 : K, stride_k = conv1d ? spec.rows : 1;
  for (int64_t row = 0; row < spec.rows; ++row) {
    const HfRow theirs = hf_row(spec, config, row);
    for (int64_t k = 0; k < K; ++k)
      f(row * K + k, theirs.tensor, theirs.row * stride_row + k * stride_k);
  }
}

/// `name` with another name for its last part but one, such as "qkv_proj" in
/// "model.layers.0.self_attn.qkv_proj.weight".
std::string renamed(const std::string& name, const std::string& part) {
  const size_t end = name.rfind('.'), begin = name.rfind('.', end - 1) + 1;
  return name.substr(0, begin) + part + name.substr(end);
}

}  // namespace

std::vector<HfTensor> hf_tensors(const ParamSpec& spec, const GptConfig& config) {
  if (!spec.is_matrix()) return {{spec.name, {spec.rows}}};
  const int64_t K = spec.shape.dims[1];
  const auto part = [&](const char* name, int64_t rows) {
    return HfTensor{renamed(spec.name, name), {rows, K}};
  };
  if (is_llama(config) && spec.role == Role::Qkv) {
    const int64_t kv = config.groups() * config.head_size();
    return {part("q_proj", config.channels), part("k_proj", kv), part("v_proj", kv)};
  }
  if (family(config) == Family::Mixtral && spec.role == Role::GateUp)
    return {part("w1", config.expert_inner()), part("w3", config.expert_inner())};
  if (family(config) == Family::Llama && spec.role == Role::GateUp)
    return {part("gate_proj", config.inner()), part("up_proj", config.inner())};
  return {{spec.name, is_transposed(spec, config) ? Shape{K, spec.rows} : Shape{spec.rows, K}}};
}

bool is_transposed(const ParamSpec& spec, const GptConfig& config) {
  return family(config) == Family::Gpt2 &&
         (spec.role == Role::Matrix || spec.role == Role::Projection || spec.role == Role::Qkv);
}

HfRow hf_row(const ParamSpec& spec, const GptConfig& config, int64_t row) {
  if (family(config) == Family::Mixture) return {0, row};
  if (is_qkv(spec)) return qkv_row(config, row);
  if (spec.role == Role::GateUp) return {static_cast<size_t>(row % 2), row / 2};
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
  for_each_element(spec, config, [&](int64_t i, size_t which, int64_t j) {
    out[i] = hf[which].data<float>()[j];
  });
}

}  // namespace ladder
