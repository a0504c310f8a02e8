#include "common/run/hf_config.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/run/json.h"

namespace ladder {
namespace {

using nlohmann::json;

constexpr double kEpsilon = 1e-5;  // of layer norms, in every backend

// The tokenizer of GPT-2 has one token for where a text begins and where it ends. Bytes have none.
constexpr int64_t kGpt2Vocab = 50257;
constexpr int64_t kGpt2EndOfText = 50256;

// Names in transformers for GELU in its tanh form, which kernels/kernels.h defines.
constexpr std::array<std::string_view, 4> kTanhGelu = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast",
                                                       "gelu_accurate"};

/// A size of the model, with the names that transformers accept for it.
struct Size {
  const char* key;
  const char* alias;  ///< null: none
  int64_t standard;   ///< where a config.json leaves it out
  int64_t GptConfig::*here;
  const char* flag;  ///< that sets it
};
constexpr std::array kSizes = {
    Size{"n_layer", "num_hidden_layers", 12, &GptConfig::layers, "--layers"},
    Size{"n_head", "num_attention_heads", 12, &GptConfig::heads, "--heads"},
    Size{"n_embd", "hidden_size", 768, &GptConfig::channels, "--channels"},
    Size{"n_positions", "max_position_embeddings", 1024, &GptConfig::positions, "--model"},
    Size{"vocab_size", nullptr, 50257, &GptConfig::vocab, "--model"},
};

void check_size(const json& theirs, const Size& size, const GptConfig& config) {
  const json here = config.*size.here;
  const auto check = [&](const char* key, const json& there) {
    if (there != here)
      throw UserError("{} is {}, but this model has {}; see {}", key, shown(there), shown(here),
                      size.flag);
  };
  const bool by_alias = size.alias && theirs.contains(size.alias);
  if (by_alias) check(size.alias, theirs.at(size.alias));
  if (!by_alias || theirs.contains(size.key))
    check(size.key, theirs.value(size.key, json(size.standard)));
}

/// What Ladder computes, where GPT-2 in transformers knows other ways.
void check_function(const json& theirs, const char* key, const json& standard, const json& here) {
  const json there = theirs.value(key, standard);
  if (there != here)
    throw UserError("{} is {}, but Ladder computes with {}", key, shown(there), shown(here));
}

void check_activation(const json& theirs) {
  constexpr const char* kKey = "activation_function";
  const json there = theirs.value(kKey, json("gelu_new"));
  if (std::none_of(kTanhGelu.begin(), kTanhGelu.end(),
                   [&](std::string_view name) { return there == name; }))
    throw UserError("{} is {}, but Ladder computes \"gelu_new\", GELU in its tanh form", kKey,
                    shown(there));
}

void check_epsilon(const json& theirs) {
  constexpr const char* kKey = "layer_norm_epsilon";
  const json there = theirs.value(kKey, json(kEpsilon));
  // It may have been a float on its way into the file.
  if (!there.is_number() || there.get<float>() != static_cast<float>(kEpsilon))
    throw UserError("{} is {}, but Ladder computes with {}", kKey, shown(there), kEpsilon);
}

}  // namespace

json hf_config(const GptConfig& config) {
  const json end_of_text = config.vocab == kGpt2Vocab ? json(kGpt2EndOfText) : json(nullptr);
  return {
      {"architectures", json::array({"GPT2LMHeadModel"})},
      {"model_type", "gpt2"},
      {"n_layer", config.layers},
      {"n_head", config.heads},
      {"n_embd", config.channels},
      {"n_inner", 4 * config.channels},
      {"n_positions", config.positions},
      {"vocab_size", config.vocab},
      {"activation_function", "gelu_new"},
      {"layer_norm_epsilon", kEpsilon},
      {"scale_attn_weights", true},
      {"scale_attn_by_inverse_layer_idx", false},
      {"reorder_and_upcast_attn", false},
      {"add_cross_attention", false},
      {"tie_word_embeddings", config.tied_head},  // left out, it would be true
      {"attn_pdrop", 0.0},
      {"embd_pdrop", 0.0},
      {"resid_pdrop", 0.0},
      {"bos_token_id", end_of_text},
      {"eos_token_id", end_of_text},
      {"torch_dtype", "float32"},
  };
}

bool check_hf_config(const json& theirs, const GptConfig& config) {
  if (!theirs.is_object()) throw UserError("not the configuration of a model");
  check_function(theirs, "model_type", "gpt2", "gpt2");
  for (const Size& size : kSizes) check_size(theirs, size, config);
  const json inner = 4 * config.channels;
  if (theirs.contains("n_inner") && !theirs.at("n_inner").is_null())
    check_function(theirs, "n_inner", inner, inner);
  check_activation(theirs);
  check_epsilon(theirs);
  check_function(theirs, "scale_attn_weights", true, true);
  check_function(theirs, "scale_attn_by_inverse_layer_idx", false, false);
  check_function(theirs, "add_cross_attention", false, false);
  const json tied = theirs.value("tie_word_embeddings", json(true));
  if (!tied.is_boolean())
    throw UserError("tie_word_embeddings is {}; legal are true and false", shown(tied));
  if (config.tied_head && !tied.get<bool>())
    throw UserError("tie_word_embeddings is false; legal is a run without --tied-head");
  return tied.get<bool>();
}

}  // namespace ladder
