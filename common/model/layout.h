// ParamLayout: where each parameter lies in the one flat buffer, and the buffer seen as a model.
//
//   | embed: wte wpe | block 0 | block 1 | ... | head: norm, head |
//
// Parameters, gradients and the states of an optimizer share this layout. Each tensor starts at
// a multiple of kAlign elements, so a block, a pipeline stage and a bucket are each one
// contiguous range.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "kernels/tensor.h"
#include "kernels/tree.h"

namespace ladder {

/// What a parameter is: decides initialisation, weight decay and the layout in a checkpoint.
enum class Role : uint8_t {
  Embedding,   ///< wte, wpe: (rows, C)
  Matrix,      ///< a linear layer (N, K), as torch.nn.Linear has it
  Projection,  ///< the linear layer that ends a branch of the residual stream
  Qkv,         ///< (3C, C), rows head by head: q, k, v of head 0, then of head 1, ...
  Head,        ///< (Vp, C)
  Gain,        ///< weight of a layer norm (C)
  Bias,        ///< (N)
  QkvBias,     ///< (3C), in the order of Qkv
};

/// One parameter tensor.
struct ParamSpec {
  std::string name;  ///< as in the Hugging Face GPT-2 model: "transformer.h.0.ln_1.weight"
  Role role;
  int64_t offset;  ///< in elements of the flat buffer; a multiple of kAlign
  Shape shape;     ///< as stored, padded vocabulary rows included
  int64_t rows;    ///< extent 0 without padding: only these are initialised, hashed and saved

  bool is_matrix() const { return shape.rank == 2; }
  /// Elements that are parameters: no padding.
  int64_t live() const { return is_matrix() ? rows * shape.dims[1] : rows; }
};

/// A weight with its bias: a linear layer (w (N,K), b (N)) or a layer norm (w, b (C)).
struct Affine {
  Tensor w, b;
};
struct EmbedTensors {
  Tensor wte, wpe;  ///< (Vp,C), (positions,C)
};
struct AttnTensors {
  Affine qkv;     ///< (3C,C), (3C)
  Tensor proj_w;  ///< (C,C); its bias is added by the join
};
struct MlpTensors {
  Affine fc;      ///< (4C,C), (4C)
  Tensor proj_w;  ///< (C,4C); its bias is added by the join
};
struct BlockTensors {
  Affine norm1;
  AttnTensors attn;
  Tensor join1_b;  ///< (C)
  Affine norm2;
  MlpTensors mlp;
  Tensor join2_b;  ///< (C)
};
/// A whole flat buffer seen as a model: parameters, or their gradients.
struct GptTensors {
  EmbedTensors embed;
  std::vector<BlockTensors> blocks;
  Affine norm;    ///< the last layer norm
  Tensor head_w;  ///< (Vp,C)
};

class ParamLayout {
 public:
  explicit ParamLayout(const GptConfig& config);

  /// Elements of the flat buffer, alignment and padded vocabulary counted.
  int64_t size() const { return size_; }
  /// Parameters of the model: no alignment, no padded vocabulary.
  int64_t live() const;

  /// All parameters, in the order of the buffer.
  const std::vector<ParamSpec>& specs() const { return specs_; }

  /// Elements of the embedding, of block l, and of the last norm with the head.
  Range embed_range() const { return sections_.front(); }
  Range block_range(int64_t l) const { return sections_.at(static_cast<size_t>(l) + 1); }
  Range head_range() const { return sections_.back(); }

  /// One parameter inside a flat buffer of size() elements.
  static Tensor tensor(Tensor flat, const ParamSpec& spec);
  /// All parameters inside a flat buffer of size() elements.
  GptTensors view(Tensor flat) const;

 private:
  void add(std::string name, Role role, Shape shape, int64_t rows);
  void add_block(const GptConfig& config, int64_t l);
  void end_section();

  int64_t layers_;
  int64_t size_ = 0;
  std::vector<ParamSpec> specs_;
  std::vector<Range> sections_;
};

}  // namespace ladder
