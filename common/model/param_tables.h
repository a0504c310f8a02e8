// The parameters of each section, in the order of the buffer.
//
// A section is a table. All that is known of a parameter stands in its row: its place in the buffer
// by the order, its name in a checkpoint, how it is initialized, how ranks share it, and where the
// view has it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/model/layout.h"

namespace ladder {

/// A parameter, or the same one of each expert.
template <class Section>
struct ParamRow {
  const char* gpt2;   ///< its name there; "{}" is the number of an expert
  const char* llama;  ///< null: it has none
  Role role;
  Shape shape;
  Cut cut;
  Tensor* (*place)(Section&);
  bool is_there = true;          ///< whether this model has it
  int64_t rows = shape.dims[0];  ///< without padding
  int64_t count = 0;             ///< experts that have it; 0: it is one tensor

  std::string name(const GptConfig& config, int64_t expert) const {
    return fmt::format(fmt::runtime(has_llama_names(config) ? llama : gpt2), expert);
  }
  /// Numbers of the tensors that a rank with these experts has.
  Range tensors(Range experts) const { return count == 0 ? Range{0, 1} : experts; }
  /// Of so many of its tensors, which lie one behind the other.
  Tensor view(Tensor all, int64_t tensors, Shape one) const {
    return all.view(count == 0 ? one : Shape{tensors, one.dims[0], one.dims[1]});
  }
};

using ModelTable = std::vector<ParamRow<GptTensors>>;
using BlockTable = std::vector<ParamRow<BlockTensors>>;

ModelTable embed_table(const GptConfig& config);
BlockTable block_table(const GptConfig& config);
/// The last norm and the head.
ModelTable head_table(const GptConfig& config);
/// Embedding and last norm of a model whose head is tied.
ModelTable tied_table(const GptConfig& config);

/// What the names of the parameters of block l begin with.
std::string block_prefix(const GptConfig& config, int64_t l);

}  // namespace ladder
