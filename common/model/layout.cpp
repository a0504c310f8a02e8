#include "common/model/layout.h"

#include "common/model/param_tables.h"

namespace ladder {
ParamLayout::ParamLayout(const GptConfig& config, int64_t shards, TensorRank tensor,
                         StageRank stage, std::optional<ExpertRank> experts)
    : ParamLayout(config, tensor, stage, experts) {
  config.check();
  shards_ = shards;
  CHECK(!config.tied_head || stage.size == 1, "a tied head on {} stages", stage.size);
  GptTensors gpt;  // rows point there; nothing is written
  BlockTensors block;
  if (stage.has_embed())
    add_section("", config.tied_head ? tied_table(config, gpt) : embed_table(config, gpt));
  end_section();
  for (int64_t l = 0; l < config.layers; ++l)
    for_block(l, block, [&](int64_t, const ParamTable& table) {
      if (stage.has_block(l, config.layers)) add_section(block_prefix(config, l), table);
      end_section();
    });
  if (stage.has_head() && !config.tied_head) add_section("", head_table(config, gpt));
  end_section();
  whole_sections_ = sections_;
}

void ParamLayout::add_section(const std::string& prefix, const std::vector<ParamRow>& table) {
  for (const ParamRow& row : table) {
    Shape shape = row.shape;
    const int64_t stride = shape.rank == 2 ? shape.dims[1] : 1;
    const int dim = row.cut == Cut::Columns ? 1 : 0;
    int64_t rows = row.rows, begin = 0;  // begin: where the rows or columns of this rank begin
    if (row.cut != Cut::None) {
      shape.dims[dim] = div_exact(shape.dims[dim], tensor_.size);
      begin = tensor_.rank * shape.dims[dim];
    }
    if (row.cut == Cut::Rows) rows = std::clamp<int64_t>(rows - begin, 0, shape.dims[0]);
    const Range tensors = row.tensors(experts_here());
    for (int64_t number = tensors.begin; number < tensors.end; ++number) {
      specs_.push_back({.name = prefix + row.name(config_, number),
                        .role = row.role,
                        .shape = shape,
                        .rows = rows,
                        .first = row.cut == Cut::Columns ? begin : begin * stride,
                        .stride = stride,
                        .is_copy = row.cut == Cut::None && tensor_.rank > 0,
                        .part = {0, shape.size()},
                        .offset = size_,
                        .whole_offset = size_});
      size_ += round_up(shape.size(), kAlign);
    }
  }
}

void ParamLayout::end_section() {
  const int64_t begin = sections_.empty() ? 0 : sections_.back().end;
  const int64_t first = section_specs_.empty() ? 0 : section_specs_.back().end;
  size_ = begin + round_up(size_ - begin, kAlign * chunks(sections()));
  sections_.push_back({begin, size_});
  section_specs_.push_back({first, std::ssize(specs_)});
}

template <class Add>
void ParamLayout::for_block(int64_t l, BlockTensors& block, Add&& add) const {
  const ParamTable table = block_table(config_, block);
  if (!experts_) return add(block_section(l), table);
  const auto first = std::ranges::find_if(table, [](auto& row) { return row.count > 0; });
  add(block_section(l), ParamTable(table.begin(), first));
  add(expert_section(l), ParamTable(first, table.end()));
}

ParamLayout ParamLayout::shard(int64_t rank) const {
  CHECK(rank >= 0 && rank < shards_ && size_ == whole_size(), "shard {} of {}", rank, shards_);
  ParamLayout own(config_, tensor_, stage_, experts_);
  own.shards_ = shards_;
  own.rank_ = rank;
  own.whole_sections_ = whole_sections_;
  for (int64_t s = 0; s < sections(); ++s) {
    const int64_t n = div_exact(section(s).size(), chunks(s));
    const int64_t begin = section(s).begin + own.chunk(s) * n;
    const Range chunk{begin, begin + n};
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

ParamLayout ParamLayout::on_rank(int64_t rank) const {
  const int64_t tensor = rank % tensor_.size, replica = rank / tensor_.size;
  const int64_t shard = replica % shards_, stage = replica / shards_ % stage_.size;
  std::optional<ExpertRank> experts = experts_;
  if (experts) experts->rank = shard % experts->size;
  const ParamLayout there(config_, shards_, {tensor, tensor_.size},
                          {stage, stage_.size, stage_.chunks}, experts);
  return size_ == whole_size() ? there : there.shard(shard);
}

ParamLayout ParamLayout::grads() const {
  ParamLayout both = *this;
  if (!config_.tied_head) return both;
  for (ParamSpec spec : specs(0)) {
    spec.offset += size_;
    spec.whole_offset += whole_size();
    both.specs_.push_back(spec);
  }
  both.size_ += section(0).size();
  both.sections_.back().end += section(0).size();
  both.whole_sections_.back().end += whole_section(0).size();
  both.section_specs_.back().end = std::ssize(both.specs_);
  return both;
}

int64_t ParamLayout::live() const {
  int64_t sum = 0;
  for (const ParamSpec& spec : specs_) sum += spec.is_copy ? 0 : spec.live();
  return sum;
}

int64_t ParamLayout::largest_section() const {
  int64_t most = 0;
  for (const Range& section : sections_) most = std::max(most, section.size());
  return most;
}

void ParamLayout::check(const Flat& flat) const {
  const int64_t expected = flat.is_shard ? size_ : whole_size(), n = flat.tensor.size();
  CHECK(n == expected, "a {} buffer of {} elements, not {}", flat.is_shard ? "shard's" : "whole", n,
        expected);
}

Tensor ParamLayout::section_of(const Flat& flat, int64_t s) const {
  check(flat);
  const Range own = section(s);
  const int64_t in_whole = whole_section(s).begin + chunk(s) * own.size();
  return flat.tensor.slice(flat.is_shard ? own.begin : in_whole, own.size());
}

std::span<const ParamSpec> ParamLayout::specs(int64_t s) const {
  const Range range = section_specs_.at(static_cast<size_t>(s));
  return std::span(specs_).subspan(static_cast<size_t>(range.begin),
                                   static_cast<size_t>(range.size()));
}

const ParamSpec* ParamLayout::find(std::string_view name) const {
  const auto at = std::find_if(specs_.begin(), specs_.end(),
                               [&](const ParamSpec& spec) { return spec.name == name; });
  return at == specs_.end() ? nullptr : &*at;
}

const ParamSpec& ParamLayout::spec(std::string_view name) const {
  const ParamSpec* spec = find(name);
  CHECK(spec, "no parameter {}", name);
  return *spec;
}

std::vector<Tensor> ParamLayout::sections_of(const Flat& flat) const {
  std::vector<Tensor> all;
  for (int64_t s = 0; s < sections(); ++s)
    if (section(s).size() > 0) all.push_back(section_of(flat, s));
  return all;
}

Tensor ParamLayout::tensor(const Flat& flat, const ParamSpec& spec) const {
  check(flat);
  const int64_t offset = flat.is_shard ? spec.offset : spec.whole_offset;
  const Tensor part = flat.tensor.slice(offset, spec.part.size());
  return spec.is_whole() ? part.view(spec.shape) : part;
}

GptTensors ParamLayout::view(Tensor whole) const {
  GptTensors gpt;
  for (int64_t s = 0; s < sections(); ++s) put(gpt, s, section_of(whole, s));
  return gpt;
}

void ParamLayout::put(GptTensors& gpt, int64_t s, Tensor section) const {
  const Range range = this->section(s);
  CHECK(section.size() == range.size() && size_ == whole_size(), "section {} in a buffer of {}", s,
        section.size());
  gpt.blocks.resize(static_cast<size_t>(config_.layers));
  if (range.size() == 0) return;
  const auto put_rows = [&](const ParamTable& table) {
    auto spec = specs(s).begin();  // the first tensor of a row
    for (const ParamRow& row : table) {
      const int64_t n = row.tensors(experts_here()).size(), elements = n * spec->shape.size();
      *row.place = row.view(section.slice(spec->offset - range.begin, elements), n, spec->shape);
      spec += n;
    }
  };
  const bool head = s == sections() - 1;
  if (s > 0 && !head) {
    const int64_t l = experts_ ? (s - 1) / 2 : s - 1;
    for_block(l, gpt.blocks[static_cast<size_t>(l)], [&](int64_t at, const ParamTable& table) {
      if (at == s) put_rows(table);
    });
  } else if (config_.tied_head) {
    GptTensors both;
    put_rows(tied_table(config_, both));
    if (!head) gpt.embed = both.embed;
    gpt.embed.tied = specs(sections() - 1).empty();  // else the head has gradients of its own
    gpt.norm = both.norm;
    gpt.head_w = both.embed.wte;
  } else if (head) {
    put_rows(head_table(config_, gpt));
  } else {
    put_rows(embed_table(config_, gpt));
  }
}

}  // namespace ladder
