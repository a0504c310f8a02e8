// ParamLayout: where each parameter lies in the one flat buffer, and the buffer seen as a model.
//
//   | embed: wte wpe | block 0 | block 1 | ... | head: norm, head |
//
// A tied head has no weights but wte. The last norm is beside wte then, and the section of the head
// is empty but for gradients: common/model/tied_head.h.
// Parameters, gradients and the states of an optimizer share this layout. Each tensor starts at
// a multiple of kAlign elements, so a section (embed, a block, head) is one contiguous range.
//
// With tensor parallelism a rank has a part of each large tensor: some of its rows, or some of its
// columns. Small tensors are whole on every rank. A stage of a pipeline has some sections, in this
// order; the others are empty there.
//
// With N shards each section is padded to N equal chunks. Shard r is chunk r of every section, one
// after the other:
//
//   | chunk r of embed | chunk r of block 0 | ... | chunk r of head |
//
// Where ranks share experts, those of a block are a section of their own, behind the block's. Only
// the ranks that have the same experts hold chunks of it: with ep ranks to share them, N / ep.
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

/// What a parameter is: decides initialization, weight decay and the layout in a checkpoint.
enum class Role : uint8_t {
  Embedding,   ///< of tokens (Vp, C)
  Position,    ///< of positions (rows, C)
  Matrix,      ///< a linear layer (N, K), as torch.nn.Linear has it
  Projection,  ///< the linear layer that ends a branch of the residual stream
  Qkv,         ///< ((NH+2*NKV)*HS, C), rows group by group: its queries, k, v
  GateUp,      ///< (2F, C), rows channel by channel: its gate, what the gate lets through
  Head,        ///< (Vp, C)
  Gain,        ///< weight of a norm (C)
  Bias,        ///< (N)
  QkvBias,     ///< in the order of Qkv
};

/// How tensor ranks share a tensor.
enum class Cut : uint8_t { None, Rows, Columns };

/// One parameter tensor, or what a rank has of it.
struct ParamSpec {
  std::string name;  ///< as in Hugging Face's model of its family: "transformer.h.0.ln_1.weight"
  Role role;
  Shape shape;           ///< of the tensor on this rank, padded vocabulary rows included
  int64_t rows;          ///< extent 0 without padding: only these are initialized, hashed and saved
  int64_t first = 0;     ///< element (0,0), in the whole tensor
  int64_t stride = 0;    ///< elements from one row to the next in the whole tensor
  bool is_copy = false;  ///< tensor rank 0 has it, too: it counts there
  Range part = {};       ///< which of its elements lie here: all, but in a shard
  int64_t offset = 0;    ///< of the part, in the flat buffer; a multiple of kAlign
  int64_t whole_offset = 0;  ///< the same in the flat buffer without shards

  bool is_matrix() const { return shape.rank == 2; }
  bool is_whole() const { return part.size() == shape.size(); }
  /// Elements of the part that are parameters: no padding.
  int64_t live() const {
    const int64_t all = is_matrix() ? rows * shape.dims[1] : rows;
    return std::max<int64_t>(0, std::min(part.end, all) - part.begin);
  }

  /// Calls use(here, there, n) for elements that are neighbors here and in the whole tensor, in
  /// order: those that live, [here, here + n) of the part and [there, there + n) of the tensor.
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

class ParamLayout {
 public:
  /// The whole model, or what a tensor rank and a stage have of it.
  /// @param shards  into which each section can be cut
  /// @param experts if given, experts have sections of their own, and these are here
  explicit ParamLayout(const GptConfig& config, int64_t shards = 1, TensorRank tensor = {},
                       StageRank stage = {}, std::optional<ExpertRank> experts = {});
  /// What rank `rank` of shards() holds.
  ParamLayout shard(int64_t rank) const;
  /// This, on rank `rank` of all that share the model: tensor ranks are neighbors, then come the
  /// shards of a stage, then the next stage.
  ParamLayout on_rank(int64_t rank) const;

  int64_t size() const { return size_; }  ///< elements, alignment and padded vocabulary counted
  /// The same of the whole model: size() * shards() in a shard.
  int64_t whole_size() const { return whole_sections_.back().end; }
  /// The whole model, in as many sections.
  ParamLayout whole() const {
    return ParamLayout(config_, 1, {}, {}, experts_ ? ExpertRank{} : experts_);
  }
  /// This without a cut into shards; and with the gradients of a tied head behind it.
  ParamLayout unsharded() const { return ParamLayout(config_, shards_, tensor_, stage_, experts_); }
  ParamLayout grads() const;

  const GptConfig& config() const { return config_; }
  int64_t shards() const { return shards_; }
  TensorRank tensor_rank() const { return tensor_; }
  StageRank stage_rank() const { return stage_; }
  int64_t rank() const { return rank_; }  ///< which shard this is
  int64_t live() const;                   ///< parameters that count here, no padding
  /// All parameters, in the order of the buffer.
  const std::vector<ParamSpec>& specs() const { return specs_; }
  /// Those of section s.
  std::span<const ParamSpec> specs(int64_t s) const;
  /// The one of this name; null: there is none here.
  const ParamSpec* find(std::string_view name) const;
  /// @throws CheckError if there is none
  const ParamSpec& spec(std::string_view name) const;

  /// Sections: 0 is embed, then come the blocks, the last one is the last norm with the head. Those
  /// of other stages are empty, and that of a tied head.
  int64_t sections() const { return std::ssize(sections_); }
  /// Those of block l: l + 1, or two where experts have their own.
  int64_t block_section(int64_t l) const { return experts_ ? 2 * l + 1 : l + 1; }
  int64_t expert_section(int64_t l) const { return block_section(l) + (experts_ ? 1 : 0); }
  bool is_of_experts(int64_t s) const { return experts_ && s > 0 && s % 2 == 0; }
  /// Into how many chunks section s is cut, and which of them is here.
  int64_t chunks(int64_t s) const {
    return is_of_experts(s) ? div_exact(shards_, experts_->size) : shards_;
  }
  int64_t chunk(int64_t s) const { return is_of_experts(s) ? rank_ / experts_->size : rank_; }
  /// The section with the parameters of s: s, but for a tied head.
  int64_t home_of(int64_t s) const { return config_.tied_head && s == sections() - 1 ? 0 : s; }
  /// Elements of section s in a flat buffer of size() elements.
  Range section(int64_t s) const { return sections_.at(static_cast<size_t>(s)); }
  /// The same of the whole model.
  Range whole_section(int64_t s) const { return whole_sections_.at(static_cast<size_t>(s)); }
  int64_t largest_section() const;  ///< elements of it

  /// A flat buffer of size() elements: whole, or that of this shard alone.
  Flat own(Tensor flat) const { return size_ < whole_size() ? Flat(Shard(flat)) : Flat(flat); }
  /// Section s inside a flat buffer: of a shard its chunk.
  Tensor section_of(const Flat& flat, int64_t s) const;
  std::vector<Tensor> sections_of(const Flat& flat) const;  ///< all that are not empty
  /// One parameter. Shape spec.shape, or (n) of a part
  Tensor tensor(const Flat& flat, const ParamSpec& spec) const;

  /// All parameters inside a whole flat buffer; null: other stages'. Not of a shard
  GptTensors view(Tensor whole) const;
  /// Makes the parameters of section s in `gpt` lie in `section`. Not of a shard
  void put(GptTensors& gpt, int64_t s, Tensor section) const;

 private:
  ParamLayout(const GptConfig& config, TensorRank tensor, StageRank stage,
              std::optional<ExpertRank> experts)
      : config_(config), tensor_(tensor), stage_(stage), experts_(experts) {}
  /// The experts that are here.
  Range experts_here() const {
    return experts_.value_or(ExpertRank{}).experts(config_.experts.count);
  }
  /// The parameters of a table, whose names begin with `prefix`.
  template <class Table>
  void add_section(const std::string& prefix, const Table& table);
  void end_section();
  /// Calls add(s, table) for the sections of block l.
  template <class Add>
  void for_block(int64_t l, Add&& add) const;
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
  std::vector<Range> section_specs_;  ///< which of specs_ are in a section
};

}  // namespace ladder
