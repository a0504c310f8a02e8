// GptConfig: the sizes of a model, and the presets by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/rope.h"

namespace ladder {

/// The norm of the residual stream before each branch: layer norm with a bias, or RMSNorm.
enum class Norm : uint8_t { Layer, Rms };
/// The function between the two matrices of the MLP: GELU, or SwiGLU, which has a gate per channel.
enum class Mlp : uint8_t { Gelu, SwiGlu };
/// How a token gets its position: a learned row is added to it, or its queries and keys are turned.
enum class Position : uint8_t { Learned, Rope };

/// How a router scores experts: a softmax over all experts, or a sigmoid of each score.
enum class Router : uint8_t { Softmax, Sigmoid };

/// Several experts instead of one MLP (chapter 21): a router gives each token some of them.
struct Experts {
  int64_t count = 0;   ///< E; 0: a block has one MLP
  int64_t chosen = 0;  ///< k: how many of them a token takes
  int64_t shared = 0;  ///< further experts, which every token takes; together they are one MLP
  Router router = Router::Softmax;
  bool renormalize = true;  ///< the weights of a token's experts are divided by their sum

  bool operator==(const Experts&) const = default;
};

/// Sizes of a decoder whose branches begin with a norm, and the parts of its blocks. Defaults are
/// those of GPT-2.
struct GptConfig {
  std::string name;
  int64_t layers;          ///< L
  int64_t heads;           ///< NH
  int64_t channels;        ///< C
  int64_t seq_len;         ///< T, tokens of a training sequence
  int64_t positions;       ///< rows of the position table; if there is none, the longest text
  int64_t vocab;           ///< V, tokens that exist
  int64_t padded_vocab;    ///< Vp, rows of embedding and head; rows from V on stay zero
  bool tied_head = false;  ///< the head's weights are the token embedding
  int64_t kv_heads = 0;    ///< NKV; 0: NH, so each query head has its own key and value
  int64_t hidden = 0;      ///< F of an MLP or an expert; 0: 4 C
  Norm norm = Norm::Layer;
  Mlp mlp = Mlp::Gelu;
  Position position = Position::Learned;
  bool bias = true;  ///< of linear layers
  Rope rope = {};    ///< of Position::Rope
  Experts experts = {};
  /// r. If it is not 0, parameters are the adapters of this model, and nothing else (chapter 36).
  int64_t adapter_rank = 0;

  int64_t groups() const { return kv_heads == 0 ? heads : kv_heads; }  ///< NKV
  int64_t head_size() const { return channels / heads; }               ///< HS
  /// F of the MLP that every token takes. 0: the block has experts, none of them shared.
  int64_t inner() const { return (has_experts() ? experts.shared : 1) * expert_inner(); }
  /// F of one expert.
  int64_t expert_inner() const { return hidden == 0 ? 4 * channels : hidden; }
  bool has_experts() const { return experts.count > 0; }
  /// Rows of qkv. Each group has its queries, a key and a value.
  int64_t qkv_rows() const { return (heads + 2 * groups()) * head_size(); }
  /// Rows of the MLP's first matrix: F, or 2F with SwiGLU, where gate and up alternate.
  int64_t fc_rows() const { return mlp == Mlp::SwiGlu ? 2 * inner() : inner(); }
  /// Elements of all matrices of a block that multiply a token: 12 C^2 in GPT-2.
  int64_t block_matrices() const {
    return channels * (qkv_rows() + channels + fc_rows() + inner() + experts.count) +
           experts.chosen * expert_matrices();
  }
  /// Elements of the experts that a token does not take.
  int64_t idle_matrices() const { return (experts.count - experts.chosen) * expert_matrices(); }
  /// Elements of one expert, which is a SwiGLU.
  int64_t expert_matrices() const { return 3 * channels * expert_inner(); }

  /// @throws UserError if a size is not positive, heads do not divide channels, groups do not
  /// divide heads, rotary positions meet an odd head size, seq_len exceeds a table of positions, or
  /// experts do not fit together.
  void check() const;
};

/// Which known model computes the same function. Mixtral is LLaMA with experts. A Mixture is no
/// known model.
enum class Family : uint8_t { Gpt2, Llama, Mixtral, Mixture };
Family family(const GptConfig& config);
/// Whether parameters have LLaMA's names, or with experts Mixtral's. All others have GPT-2's.
bool has_llama_names(const GptConfig& config);

/// Rows of embedding and head for a vocabulary: a multiple of 128 (GPT-2: 50,304).
int64_t padded(int64_t vocab);

/// Names of all presets: GPT-2 and GPT-3, LLaMA and similar models, models with experts. Each kind
/// begins with the smallest.
std::vector<std::string> preset_names();

/// The preset of that name. @throws UserError that names the legal ones
GptConfig preset(std::string_view name);

}  // namespace ladder
