#include "common/run/hf_layout.h"

namespace ladder {
namespace {

bool is_qkv(const ParamSpec& spec) { return spec.role == Role::Qkv || spec.role == Role::QkvBias; }

bool is_conv1d(const ParamSpec& spec) {
  return spec.role == Role::Matrix || spec.role == Role::Projection || spec.role == Role::Qkv;
}

// Row (3 h + j) HS + d of ours, j counting q, k, v, is row j C + h HS + d of theirs.
int64_t hf_row(const ParamSpec& spec, int64_t heads, int64_t row) {
  if (!is_qkv(spec)) return row;
  const int64_t C = div_exact<int64_t>(spec.rows, 3);
  const int64_t HS = div_exact(C, heads);
  const int64_t h = row / (3 * HS), j = row / HS % 3, d = row % HS;
  return j * C + h * HS + d;
}

// f(index in ours, index in theirs) for every element but those of padding.
template <class F>
void for_each_element(const ParamSpec& spec, int64_t heads, F f) {
  const int64_t K = spec.is_matrix() ? spec.shape.dims[1] : 1;
  const int64_t stride_row = is_conv1d(spec) ? 1 : K;
  const int64_t stride_k = is_conv1d(spec) ? spec.rows : 1;
  for (int64_t row = 0; row < spec.rows; ++row) {
    const int64_t begin = hf_row(spec, heads, row) * stride_row;
    for (int64_t k = 0; k < K; ++k) f(row * K + k, begin + k * stride_k);
  }
}

}  // namespace

Shape hf_shape(const ParamSpec& spec) {
  if (!spec.is_matrix()) return {spec.rows};
  const int64_t K = spec.shape.dims[1];
  return is_conv1d(spec) ? Shape{K, spec.rows} : Shape{spec.rows, K};
}

void to_hf(Tensor hf, Tensor ours, const ParamSpec& spec, int64_t heads) {
  float* out = hf.data<float>();
  const float* inp = ours.data<float>();
  for_each_element(spec, heads, [&](int64_t i, int64_t j) { out[j] = inp[i]; });
}

void from_hf(Tensor ours, Tensor hf, const ParamSpec& spec, int64_t heads) {
  float* out = ours.data<float>();
  const float* inp = hf.data<float>();
  for_each_element(spec, heads, [&](int64_t i, int64_t j) { out[i] = inp[j]; });
}

}  // namespace ladder
