// --norm, --mlp, --position, --kv-heads: turn GPT-2's block into LLaMA's, one part at a time.
//
// A block is data: GptConfig says which norm, MLP, positions, heads and biases it has. The table of
// its parameters (common/model/param_tables.cpp), their initial values, activations and checkpoints
// follow from that. So these flags only change the GptConfig of a preset, before anything is made
// of it.
//
//   flag              weights of a block       numbers per token that a block keeps
//   (GPT-2)           12 C^2 + 13 C            16 C + NH + 4
//   --norm rms        2 C fewer                2 fewer: there is no mean
//   --mlp swiglu      3 C F + 2 F instead      3 F instead of 8 C
//                     of 8 C^2 + 4 C
//   --position rope   none                     none; one table of T HS numbers for the model
//   --kv-heads NKV    2 (C + 1) (NH - NKV) HS  2 (NH - NKV) HS fewer
//                     fewer
//   --no-bias         9 C fewer, with SwiGLU   none
//                     5 C + 2 F
//
// With F = 8C/3 the three matrices of SwiGLU have the 8 C^2 weights of GELU's two.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/model/activations.h"
#include "common/names.h"
#include "common/run/command_line.h"
#include "common/run/log.h"
#include "common/run/options.h"
#include "kernels/cost.h"

namespace ladder {

constexpr auto names_of(Norm) { return std::array{"layer", "rms"}; }
constexpr auto names_of(Mlp) { return std::array{"gelu", "swiglu"}; }
constexpr auto names_of(Position) { return std::array{"learned", "rope"}; }

/// How many channels SwiGLU needs for its three matrices to have as many weights as GELU's two:
/// 8C/3, rounded to the nearest multiple of 128.
constexpr int64_t equal_hidden(int64_t channels) {
  constexpr int64_t kStep = 128;
  return std::max<int64_t>(1, (8 * channels + 3 * kStep / 2) / (3 * kStep)) * kStep;
}

struct BlockOptions {
  std::string norm, mlp, position;  ///< empty: as in the model
  std::optional<int64_t> kv_heads, hidden;
  double theta = 0;  ///< 0: as in the model
  bool no_bias = false;

  void add_to(CommandLine& line) {
    line.group("19_llama");
    line.add("--norm", norm, "layer, or rms: RMSNorm", one_of<Norm>());
    line.add("--mlp", mlp, "gelu, or swiglu, whose channels have a gate each", one_of<Mlp>());
    line.add("--position", position, "learned, or rope: queries and keys are turned",
             one_of<Position>());
    line.add("--kv-heads", kv_heads, "heads of keys and values, which groups of query heads share",
             {.shown_default = "the model's"});
    line.add("--hidden", hidden, "channels inside the MLP",
             {.shown_default = "the model's; where --mlp changes it, as many weights as before"});
    line.add("--rope-theta", theta, "how slowly the slowest pair turns; 0: the model's");
    line.add("--no-bias", no_bias, "linear layers have no bias");
  }

  /// The model of `run` with these parts. @throws UserError that names what is legal
  GptConfig gpt(const RunOptions& run) const {
    GptConfig config = run.gpt();
    const Mlp before = config.mlp;
    set(config.norm, norm);
    set(config.mlp, mlp);
    set(config.position, position);
    if (config.mlp != before)
      config.hidden = config.mlp == Mlp::Gelu ? 0 : equal_hidden(config.channels);
    if (hidden) require_range("--hidden", *hidden, 1, kMaxHidden);
    if (kv_heads) require_range("--kv-heads", *kv_heads, 1, config.heads);
    config.hidden = hidden.value_or(config.hidden);
    config.kv_heads = kv_heads.value_or(config.kv_heads);
    if (config.heads % config.groups() != 0)
      throw UserError("--kv-heads {} must divide --heads {}", config.groups(), config.heads);
    if (no_bias) config.bias = false;
    set_theta(config);
    config.check();
    return config;
  }

 private:
  static constexpr int64_t kMaxHidden = 1 << 17;
  static constexpr double kMaxTheta = 1e12;

  template <class Part>
  static FlagRules one_of() {
    return {.legal = {kNames<Part>.begin(), kNames<Part>.end()}, .shown_default = "the model's"};
  }
  template <class Part>
  static void set(Part& part, const std::string& name) {
    part = named<Part>(name).value_or(part);
  }
  void set_theta(GptConfig& config) const {
    if (theta == 0) return;
    if (!(theta > 1 && theta <= kMaxTheta))
      throw UserError("--rope-theta must be above 1 and at most {}, not {}", kMaxTheta, theta);
    if (config.position != Position::Rope)
      throw UserError("--rope-theta is for --position rope, not learned");
    config.rope.theta = theta;
  }
};

/// How many parameters a model has, without padding.
inline int64_t count_weights(const GptConfig& config) {
  const int64_t C = config.channels;
  const int64_t norm = config.norm == Norm::Rms ? C : 2 * C;
  const int64_t biases = config.bias ? config.qkv_rows() + config.fc_rows() + 2 * C : 0;
  const int64_t rows = (config.tied_head ? 1 : 2) * config.vocab +
                       (config.position == Position::Learned ? config.positions : 0);
  return rows * C +
         // idle: of experts that a token does not take (chapter 21); here 0
         config.layers * (config.block_matrices() + config.idle_matrices() + biases + 2 * norm) +
         norm;
}

/// How many numbers a token's keys and values are in all blocks. Backward reads them, and a program
/// that generates text would keep them for each token.
inline int64_t count_keys_and_values(const GptConfig& config) {
  return 2 * config.layers * config.groups() * config.head_size();
}

/// Floating-point operations of a step's products: of those with weights and those of attention.
inline int64_t count_flops(const GptConfig& config, int64_t batch) {
  const int64_t T = config.seq_len, NH = config.heads, HS = config.head_size();
  const int64_t core = cost::attention_forward(batch, T, NH, HS).flops +
                       cost::attention_backward(batch, T, NH, HS).flops;
  const int64_t weights =
      config.layers * config.block_matrices() + config.channels * config.padded_vocab;
  return config.layers * core + 6 * batch * T * weights;
}

/// Reports what the parts change, predicted and counted.
/// @param weights parameters of the layout
/// @param flops   of the last step, without what was computed twice
inline void report_block(Log& log, const GptConfig& config, int64_t batch, int64_t weights,
                         const Activations& acts, int64_t flops) {
  int64_t keys_and_values = 0;
  for (const BlockActs& block : acts.blocks)
    keys_and_values += block.attn.qkv.dim(2) - block.attn.att.dim(2);
  const auto pair = [](int64_t predicted, int64_t measured) {
    return nlohmann::json{{"predicted", predicted}, {"measured", measured}};
  };
  log.extra()["block"] = {
      {"weights", pair(count_weights(config), weights)},
      {"keys_and_values", pair(count_keys_and_values(config), keys_and_values)},
      {"flops", pair(log.steps() == 0 ? 0 : count_flops(config, batch), flops)}};
}

}  // namespace ladder
