#include "common/model/layout.h"

namespace ladder {

ParamLayout::ParamLayout(const GptConfig& config) : layers_(config.layers) {
  config.check();
  const int64_t C = config.channels, Vp = config.padded_vocab;
  add("transformer.wte.weight", Role::Embedding, {Vp, C}, config.vocab);
  add("transformer.wpe.weight", Role::Embedding, {config.positions, C}, config.positions);
  end_section();
  for (int64_t l = 0; l < layers_; ++l) {
    add_block(config, l);
    end_section();
  }
  add("transformer.ln_f.weight", Role::Gain, {C}, C);
  add("transformer.ln_f.bias", Role::Bias, {C}, C);
  add("lm_head.weight", Role::Head, {Vp, C}, config.vocab);
  end_section();
}

void ParamLayout::add_block(const GptConfig& config, int64_t l) {
  const int64_t C = config.channels;
  const std::string h = fmt::format("transformer.h.{}.", l);
  add(h + "ln_1.weight", Role::Gain, {C}, C);
  add(h + "ln_1.bias", Role::Bias, {C}, C);
  add(h + "attn.c_attn.weight", Role::Qkv, {3 * C, C}, 3 * C);
  add(h + "attn.c_attn.bias", Role::QkvBias, {3 * C}, 3 * C);
  add(h + "attn.c_proj.weight", Role::Projection, {C, C}, C);
  add(h + "attn.c_proj.bias", Role::Bias, {C}, C);
  add(h + "ln_2.weight", Role::Gain, {C}, C);
  add(h + "ln_2.bias", Role::Bias, {C}, C);
  add(h + "mlp.c_fc.weight", Role::Matrix, {4 * C, C}, 4 * C);
  add(h + "mlp.c_fc.bias", Role::Bias, {4 * C}, 4 * C);
  add(h + "mlp.c_proj.weight", Role::Projection, {C, 4 * C}, C);
  add(h + "mlp.c_proj.bias", Role::Bias, {C}, C);
}

void ParamLayout::add(std::string name, Role role, Shape shape, int64_t rows) {
  specs_.push_back(
      {.name = std::move(name), .role = role, .offset = size_, .shape = shape, .rows = rows});
  size_ += round_up(shape.size(), kAlign);
}

void ParamLayout::end_section() {
  sections_.push_back({sections_.empty() ? 0 : sections_.back().end, size_});
}

int64_t ParamLayout::live() const {
  int64_t sum = 0;
  for (const ParamSpec& spec : specs_) sum += spec.live();
  return sum;
}

Tensor ParamLayout::tensor(Tensor flat, const ParamSpec& spec) {
  return flat.slice(spec.offset, spec.shape.size()).view(spec.shape);
}

GptTensors ParamLayout::view(Tensor flat) const {
  CHECK(flat.size() == size_, "buffer of {} elements, not {}", flat.size(), size_);
  size_t at = 0;
  const auto next = [&] { return tensor(flat, specs_[at++]); };
  // Braces evaluate from left to right: the fields stand in the order of the buffer.
  GptTensors gpt;
  gpt.embed = {next(), next()};
  for (int64_t l = 0; l < layers_; ++l)
    gpt.blocks.push_back({.norm1{next(), next()},
                          .attn{.qkv{next(), next()}, .proj_w = next()},
                          .join1_b = next(),
                          .norm2{next(), next()},
                          .mlp{.fc{next(), next()}, .proj_w = next()},
                          .join2_b = next()});
  gpt.norm = {next(), next()};
  gpt.head_w = next();
  return gpt;
}

}  // namespace ladder
