#include "common/model/layout.h"

namespace ladder {

ParamLayout::ParamLayout(const GptConfig& config, int64_t shards) : shards_(shards) {
  config.check();
  const int64_t C = config.channels, Vp = config.padded_vocab;
  add("transformer.wte.weight", Role::Embedding, {Vp, C}, config.vocab);
  add("transformer.wpe.weight", Role::Embedding, {config.positions, C}, config.positions);
  end_section();
  for (int64_t l = 0; l < config.layers; ++l) {
    add_block(config, l);
    end_section();
  }
  add("transformer.ln_f.weight", Role::Gain, {C}, C);
  add("transformer.ln_f.bias", Role::Bias, {C}, C);
  add("lm_head.weight", Role::Head, {Vp, C}, config.vocab);
  end_section();
  whole_sections_ = sections_;
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
  specs_.push_back({.name = std::move(name),
                    .role = role,
                    .shape = shape,
                    .rows = rows,
                    .part = {0, shape.size()},
                    .offset = size_,
                    .whole_offset = size_});
  size_ += round_up(shape.size(), kAlign);
}

void ParamLayout::end_section() {
  const int64_t begin = sections_.empty() ? 0 : sections_.back().end;
  const int64_t first = section_specs_.empty() ? 0 : section_specs_.back().end;
  unpadded_.push_back(size_ - begin);
  size_ = begin + round_up(size_ - begin, kAlign * shards_);
  sections_.push_back({begin, size_});
  section_specs_.push_back({first, std::ssize(specs_)});
}

ParamLayout ParamLayout::shard(int64_t rank) const {
  CHECK(rank >= 0 && rank < shards_ && size_ == whole_size(), "shard {} of {}", rank, shards_);
  ParamLayout own;
  own.shards_ = shards_;
  own.rank_ = rank;
  own.whole_sections_ = whole_sections_;
  own.unpadded_ = unpadded_;
  for (int64_t s = 0; s < sections(); ++s) {
    const int64_t n = div_exact(section(s).size(), shards_);
    const Range chunk{section(s).begin + rank * n, section(s).begin + (rank + 1) * n};
    const Range specs = section_specs_[static_cast<size_t>(s)];
    const int64_t first = std::ssize(own.specs_);
    for (int64_t i = specs.begin; i < specs.end; ++i) {
      ParamSpec spec = specs_[static_cast<size_t>(i)];
      const Range there{spec.offset, spec.offset + spec.shape.size()};
      const Range here{std::max(there.begin, chunk.begin), std::min(there.end, chunk.end)};
      if (here.size() <= 0) continue;
      spec.part = {here.begin - there.begin, here.end - there.begin};
      spec.offset = own.size_ + here.begin - chunk.begin;
      spec.whole_offset = here.begin;
      own.specs_.push_back(spec);
    }
    own.sections_.push_back({own.size_, own.size_ + n});
    own.section_specs_.push_back({first, std::ssize(own.specs_)});
    own.size_ += n;
  }
  return own;
}

int64_t ParamLayout::live() const {
  int64_t sum = 0;
  for (const ParamSpec& spec : specs_) sum += spec.live();
  return sum;
}

int64_t ParamLayout::largest_section() const {
  int64_t most = 0;
  for (const Range& section : sections_) most = std::max(most, section.size());
  return most;
}

bool ParamLayout::is_whole(const Tensor& flat) const {
  CHECK(flat.size() == size_ || flat.size() == whole_size(), "buffer of {} elements, not {} or {}",
        flat.size(), size_, whole_size());
  return flat.size() == whole_size();
}

Tensor ParamLayout::section_of(Tensor flat, int64_t s) const {
  const Range own = section(s);
  const int64_t begin = whole_section(s).begin;
  const bool chunk = is_whole(flat) && size_ < whole_size();
  return flat.slice(chunk ? begin + rank_ * own.size() : own.begin, own.size());
}

std::vector<Tensor> ParamLayout::sections_of(Tensor flat) const {
  std::vector<Tensor> all;
  for (int64_t s = 0; s < sections(); ++s) all.push_back(section_of(flat, s));
  return all;
}

Tensor ParamLayout::tensor(Tensor flat, const ParamSpec& spec) const {
  const Tensor part =
      flat.slice(is_whole(flat) ? spec.whole_offset : spec.offset, spec.part.size());
  return spec.is_whole() ? part.view(spec.shape) : part;
}

GptTensors ParamLayout::view(Tensor flat) const {
  GptTensors gpt;
  for (int64_t s = 0; s < sections(); ++s) put(gpt, s, section_of(flat, s));
  return gpt;
}

void ParamLayout::put(GptTensors& gpt, int64_t s, Tensor section) const {
  const Range range = this->section(s);
  CHECK(section.size() == range.size() && size_ == whole_size(), "section {} in a buffer of {}", s,
        section.size());
  auto at = static_cast<size_t>(section_specs_[static_cast<size_t>(s)].begin);
  const auto next = [&] {
    const ParamSpec& spec = specs_[at++];
    return section.slice(spec.offset - range.begin, spec.shape.size()).view(spec.shape);
  };
  // Braces evaluate from left to right: the fields stand in the order of the buffer.
  gpt.blocks.resize(static_cast<size_t>(sections()) - 2);
  if (s == 0) {
    gpt.embed = {next(), next()};
  } else if (s == sections() - 1) {
    gpt.norm = {next(), next()};
    gpt.head_w = next();
  } else {
    gpt.blocks[static_cast<size_t>(s) - 1] = {.norm1{next(), next()},
                                              .attn{.qkv{next(), next()}, .proj_w = next()},
                                              .join1_b = next(),
                                              .norm2{next(), next()},
                                              .mlp{.fc{next(), next()}, .proj_w = next()},
                                              .join2_b = next()};
  }
}

}  // namespace ladder
