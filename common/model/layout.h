// ParamLayout: where each parameter lies in the flat buffer, and that buffer seen as a model.
//
// Until chapter 11 read only this: the picture below, and of the class size(), specs(), sections(),
// section(), own(), tensor() and view(); from chapter 04 on also grads(); from 08 on shards(),
// shard(), section_of(), sections_of() and largest_section(); from 09 on put() and chunks(); from
// 10 on home_of(). TensorRank, StageRank and ExpertRank are for chapters 11, 12 and 22; each
// describes a whole model unless it is given.
//
//   | embed: wte wpe | block 0 | block 1 | ... | head: norm, head |
//
// A tied head has no weights except wte. The last norm then lies beside wte, and the section of the
// head is empty, except in gradients: common/model/tied_head.h. Parameters, gradients and optimizer
// states share this layout. Each tensor starts at a multiple of kAlign elements. Each section
// (embed, a block, head) is one contiguous range.
//
// With tensor parallelism a rank has a part of each large tensor: some of its rows or columns.
// Small tensors are whole on every rank. A stage of a pipeline has some sections in this order; its
// other sections are empty.
//
// With N shards each section is padded to N equal chunks. Shard r is chunk r of every section:
//
//   | chunk r of embed | chunk r of block 0 | ... | chunk r of head |
//
// Where ep ranks split experts, the experts of a block are a section of their own, after the
// block's. Its chunks are held by the N / ep ranks that have the same experts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/config.h"
#include "common/model/flat.h"
#include "common/model/model_rank.h"
#include "common/model/model_tensors.h"
#include "kernels/tensor.h"
#include "kernels/tree.h"

namespace ladder {

/// What a parameter is. Its role decides initialization, weight decay and the layout in a
/// checkpoint.
enum class Role : uint8_t {
  Embedding,       ///< of tokens (Vp, C)
  Position,        ///< of positions (rows, C)
  Matrix,          ///< a linear layer (N, K), as torch.nn.Linear has it
  Projection,      ///< the linear layer that ends a branch of the residual stream
  Qkv,             ///< ((NH+2*NKV)*HS, C), rows group by group: its queries, k, v
  GateUp,          ///< (2F, C), rows channel by channel: gate, up
  Head,            ///< (Vp, C)
  Gain,            ///< weight of a norm (C)
  Bias,            ///< (N)
  ProjectionBias,  ///< the bias of a projection (C)
  QkvBias,         ///< in the order of Qkv
  AdapterA,        ///< (S r, K), of S layers of Hugging Face's one after the other
  AdapterB,        ///< (N, S r); elements of another layer's rows are zero
  AdapterQkvB,     ///< the same, with rows in the order of Qkv
  AdapterGateUpB,  ///< the same, with rows in the order of GateUp
};

/// How tensor ranks split a tensor.
enum class Cut : uint8_t { None, Rows, Columns };

/// One parameter tensor, or the part of it that a rank has.
struct ParamSpec {
  std::string name;  ///< as in Hugging Face's model of this family: "transformer.h.0.ln_1.weight"
  Role role;
  Shape shape;               ///< of the tensor on this rank, padded vocabulary rows included
  int64_t rows;              ///< dimension 0 without padding: rows that are initialized and saved
  int64_t first = 0;         ///< where element (0,0) is in the whole tensor
  int64_t stride = 0;        ///< elements from one row to the next in the whole tensor
  bool is_copy = false;      ///< tensor rank 0 has it, too, and counts it
  Range part = {};           ///< which of its elements are here: all, unless in a shard
  int64_t offset = 0;        ///< of the part, in the flat buffer; a multiple of kAlign
  int64_t whole_offset = 0;  ///< the same in the whole flat buffer

  bool is_matrix() const { return shape.rank == 2; }
  bool is_whole() const { return part.size() == shape.size(); }
  /// How many elements of the part are parameters, not padding.
  int64_t live() const {
    const int64_t all = is_matrix() ? rows * shape.dims[1] : rows;
    return std::max<int64_t>(0, std::min(part.end, all) - part.begin);
  }

  /// Calls use(here, there, n), in order, for runs of elements that are neighbors here and in the
  /// whole tensor. A run is [here, here + n) of the part and [there, there + n) of the tensor,
  /// without padding.
  template <class Use>
  void for_runs(Use&& use) const {
    const int64_t N = is_matrix() ? shape.dims[1] : 1;
    const bool all_columns = stride == N;
    for (int64_t at = part.begin, end = part.begin + live(); at < end;) {
      const int64_t n = all_columns ? end - at : std::min(end, (at / N + 1) * N) - at;
      use(at - part.begin, first + at / N * stride + at % N, n);
      at += n;
    }
  }
};

struct ParamRow;  // common/model/param_tables.h

class ParamLayout {
 public:
  /// The layout of the whole model, or of what a tensor rank and a stage have of it.
  /// @param shards  how many chunks each section can be cut into
  /// @param experts if given, experts have sections of their own, and these experts are here
  explicit ParamLayout(const GptConfig& config, int64_t shards = 1, TensorRank tensor = {},
                       StageRank stage = {}, std::optional<ExpertRank> experts = {});
  /// The layout of what rank `rank` of shards() holds.
  ParamLayout shard(int64_t rank) const;
  /// The layout on rank `rank` of all ranks that split the model. Tensor ranks are neighbors; then
  /// come the shards of a stage, then the next stage.
  ParamLayout on_rank(int64_t rank) const;

  int64_t size() const { return size_; }  ///< elements, alignment and padded vocabulary counted
  /// The same before the cut into shards.
  int64_t whole_size() const { return whole_sections_.back().end; }
  /// The whole model, in the same number of sections.
  ParamLayout whole() const {
    return ParamLayout(config_, 1, {}, {}, experts_ ? ExpertRank{} : experts_);
  }
  /// This layout without the cut into shards.
  ParamLayout unsharded() const { return ParamLayout(config_, shards_, tensor_, stage_, experts_); }
  /// The layout of the gradients: this one, unless the head is tied. Then the last section, which
  /// is empty here, has a place for the head's gradient. It is complete long before that of the
  /// embedding, to which it is added at the end (tied_head.h).
  ParamLayout grads() const;

  const GptConfig& config() const { return config_; }
  int64_t shards() const { return shards_; }
  TensorRank tensor_rank() const { return tensor_; }
  StageRank stage_rank() const { return stage_; }
  int64_t rank() const { return rank_; }  ///< which shard this is
  int64_t live() const;                   ///< parameters that this rank counts, without padding
  /// All parameters, in the order of the buffer.
  const std::vector<ParamSpec>& specs() const { return specs_; }
  /// The parameters of section s.
  std::span<const ParamSpec> specs(int64_t s) const;
  /// The parameter of this name; null if it is not here.
  const ParamSpec* find(std::string_view name) const;
  /// @throws CheckError if there is none
  const ParamSpec& spec(std::string_view name) const;

  /// Sections: 0 is embed, then come the blocks, and the last is the last norm with the head.
  /// Sections of other stages are empty, and so is the head's section if the head is tied.
  int64_t sections() const { return std::ssize(sections_); }
  /// The section of block l: l + 1, unless experts have their own sections.
  int64_t block_section(int64_t l) const { return experts_ ? 2 * l + 1 : l + 1; }
  int64_t expert_section(int64_t l) const { return block_section(l) + (experts_ ? 1 : 0); }
  bool is_of_experts(int64_t s) const { return experts_ && s > 0 && s % 2 == 0; }
  /// How many chunks section s is cut into, and which of them is here.
  int64_t chunks(int64_t s) const {
    return is_of_experts(s) ? div_exact(shards_, experts_->size) : shards_;
  }
  int64_t chunk(int64_t s) const { return is_of_experts(s) ? rank_ / experts_->size : rank_; }
  /// The section that has the parameters of s: s itself, except for a tied head.
  int64_t home_of(int64_t s) const { return config_.tied_head && s == sections() - 1 ? 0 : s; }
  /// Elements of section s in a flat buffer of size() elements.
  Range section(int64_t s) const { return sections_.at(static_cast<size_t>(s)); }
  /// The same before the cut into shards.
  Range whole_section(int64_t s) const { return whole_sections_.at(static_cast<size_t>(s)); }
  int64_t largest_section() const;  ///< its elements

  /// A flat buffer of size() elements, as a whole one or as that of this shard.
  Flat own(Tensor flat) const { return size_ < whole_size() ? Flat(Shard(flat)) : Flat(flat); }
  /// Section s inside a flat buffer. In a shard: its chunk of s.
  Tensor section_of(const Flat& flat, int64_t s) const;
  std::vector<Tensor> sections_of(const Flat& flat) const;  ///< the sections that are not empty
  /// One parameter. It has shape spec.shape, or (n) if only a part of it is here.
  Tensor tensor(const Flat& flat, const ParamSpec& spec) const;

  /// All parameters inside a whole flat buffer; null for those of other stages. Not for a shard
  GptTensors view(Tensor whole) const;
  /// Lets the parameters of section s in `gpt` point into `section`. Not for a shard
  void put(GptTensors& gpt, int64_t s, Tensor section) const;

 private:
  ParamLayout(const GptConfig& config, TensorRank tensor, StageRank stage,
              std::optional<ExpertRank> experts)
      : config_(config), tensor_(tensor), stage_(stage), experts_(experts) {}
  /// Which experts are here.
  Range experts_here() const {
    return experts_.value_or(ExpertRank{}).experts(config_.experts.count);
  }
  /// Adds the parameters of a table. Their names begin with `prefix`.
  void add_section(const std::string& prefix, const std::vector<ParamRow>& table);
  void end_section();
  /// Calls add(s, table) for the sections of block l, whose tensors are in `block`.
  template <class Add>
  void for_block(int64_t l, BlockTensors& block, Add&& add) const;
  void check(const Flat& flat) const;

  GptConfig config_;
  TensorRank tensor_;
  StageRank stage_;
  std::optional<ExpertRank> experts_;
  int64_t shards_ = 1;
  int64_t rank_ = 0;
  int64_t size_ = 0;
  std::vector<ParamSpec> specs_;
  std::vector<Range> sections_, whole_sections_;
  std::vector<Range> section_specs_;  ///< which of specs_ each section has
};

}  // namespace ladder
