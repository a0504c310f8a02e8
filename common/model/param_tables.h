// The parameters of each section, in the order of the buffer.
//
// A section is a table, with a row for each parameter. The order of rows is the order in the
// buffer. A row has all that is known of its parameter: its name in a checkpoint, how it is
// initialized, how ranks split it, and where the view has it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/model/layout.h"

namespace ladder {

/// A parameter, or the same parameter of each expert.
struct ParamRow {
  const char* gpt2;   ///< its name in GPT-2; "{}" stands for an expert's number
  const char* llama;  ///< its name in LLaMA; null: LLaMA lacks it
  Role role;
  Shape shape;
  Cut cut;
  Tensor* place;  ///< where the view has it
  bool is_there;  ///< whether this model has it
  int64_t rows;   ///< without padding
  int64_t count;  ///< how many experts have it; 0: it is one tensor

  std::string name(const GptConfig& config, int64_t expert) const {
    return fmt::format(fmt::runtime(has_llama_names(config) ? llama : gpt2), expert);
  }
  /// Which of its tensors a rank with these experts has, by number.
  Range tensors(Range experts) const { return count == 0 ? Range{0, 1} : experts; }
  /// `tensors` of its tensors, one after the other, with the shape that the model gives them.
  Tensor view(Tensor all, int64_t tensors, Shape one) const {
    return all.view(count == 0 ? one : Shape{tensors, one.dims[0], one.dims[1]});
  }
};

using ParamTable = std::vector<ParamRow>;

/// The tables of the sections of `g`, or of a block `b` of it. Their rows point into it.
ParamTable embed_table(const GptConfig& config, GptTensors& g);
ParamTable block_table(const GptConfig& config, BlockTensors& b);
/// The last norm, and the head.
ParamTable head_table(const GptConfig& config, GptTensors& g);
/// The embedding and the last norm of a model with a tied head.
ParamTable tied_table(const GptConfig& config, GptTensors& g);

/// The prefix of the names of block l's parameters.
std::string block_prefix(const GptConfig& config, int64_t l);

}  // namespace ladder
