#include "common/hf/layout.h"

#include <algorithm>
#include <tuple>

namespace ladder {
namespace {

bool is_qkv(const ParamSpec& spec) { return spec.role == Role::Qkv || spec.role == Role::QkvBias; }

bool is_llama(const GptConfig& config) {
  return family(config) == Family::Llama || family(config) == Family::Mixtral;
}

/// A row of a tensor in the file.
struct HfRow {
  size_t tensor;  ///< which of hf_tensors()
  int64_t row;
};

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

HfRow hf_row(const ParamSpec& spec, const GptConfig& config, int64_t row) {
  if (family(config) == Family::Mixture) return {0, row};
  if (is_qkv(spec)) return qkv_row(config, row);
  if (spec.role == Role::GateUp) return {static_cast<size_t>(row % 2), row / 2};
  return {0, row};
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

/// Neighbors of one row of ours.
struct Piece {
  HfRow to;
  int64_t k;  ///< which column of the row is the first
  std::span<const float> from;
};

/// Calls use(to, k, here, n) for pieces of rows, which are neighbors in the part and in the tensor.
template <class Use>
void for_pieces(const ParamSpec& spec, const GptConfig& config, Use&& use) {
  const int64_t K = spec.stride;
  spec.for_runs([&](int64_t here, int64_t there, int64_t n) {
    for (const int64_t end = there + n; there < end;) {
      const int64_t count = std::min(end - there, K - there % K);
      use(hf_row(spec, config, there / K), there % K, here, count);
      here += count;
      there += count;
    }
  });
}

/// Calls use() for pieces that lie in the file as they lie here, or as rows in another order. Only
/// a run that is put together from several places is copied.
void for_row_runs(std::span<const Piece> pieces, int64_t K, const UseHfRun& use) {
  std::vector<float> run;
  for (size_t i = 0; i < pieces.size();) {
    const auto begin_of = [&](size_t j) { return pieces[j].to.row * K + pieces[j].k; };
    const auto& [to, k, first] = pieces[i];
    const int64_t begin = begin_of(i);
    int64_t n = 0;
    size_t end = i;
    bool is_one = true;  // whether the run is one here, too
    while (end < pieces.size() && pieces[end].to.tensor == to.tensor &&
           begin_of(end) == begin + n) {
      is_one = is_one && pieces[end].from.data() == first.data() + n;
      n += std::ssize(pieces[end++].from);
    }
    run.clear();
    for (size_t j = i; j < end && !is_one; ++j)
      run.insert(run.end(), pieces[j].from.begin(), pieces[j].from.end());
    use(to.tensor, begin, is_one ? std::span(first.data(), static_cast<size_t>(n)) : run);
    i = end;
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

void for_hf_runs(const ParamSpec& spec, const float* part, const GptConfig& config,
                 const UseHfRun& use) {
  std::vector<Piece> pieces;
  for_pieces(spec, config, [&](HfRow to, int64_t k, int64_t here, int64_t n) {
    pieces.push_back({to, k, {part + here, static_cast<size_t>(n)}});
  });
  std::ranges::sort(pieces, {}, [](const Piece& piece) {
    return std::tuple(piece.to.tensor, piece.to.row, piece.k);
  });
  for_row_runs(pieces, spec.stride, use);
}

std::vector<Strip> strips_of(const ParamSpec& spec, const GptConfig& config, int64_t rows,
                             Range range) {
  std::vector<Strip> strips;
  for_pieces(spec, config, [&](HfRow to, int64_t k, int64_t here, int64_t n) {
    const int64_t begin = std::max(k, ceil_div(range.begin - to.row, rows));
    const int64_t end = std::min(k + n, ceil_div(range.end - to.row, rows));
    const int64_t there = begin * rows + to.row - range.begin;
    if (begin < end) strips.push_back({here + begin - k, there, end - begin});
  });
  return strips;
}

void turn(std::span<const Strip> strips, const float* ours, int64_t rows, float* theirs) {
  constexpr size_t kLine = 16;
  for (size_t i = 0, end = 0; i < strips.size(); i = end) {
    const Strip& first = strips[i];
    const auto goes_on = [&] {
      return end < strips.size() && end < i + kLine && strips[end].n == first.n &&
             strips[end].there == first.there + static_cast<int64_t>(end - i);
    };
    for (end = i + 1; goes_on();) ++end;
    for (int64_t k = 0; k < first.n; ++k)
      for (size_t j = i; j < end; ++j)
        theirs[strips[j].there + k * rows] = ours[strips[j].here + k];
  }
}

void from_hf(Tensor ours, std::span<const Tensor> hf, const ParamSpec& spec,
             const GptConfig& config) {
  float* out = ours.data<float>();
  for_each_element(spec, config, [&](int64_t i, size_t which, int64_t j) {
    out[i] = hf[which].data<float>()[j];
  });
}

}  // namespace ladder
