#include "common/hf/config.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/hf/json.h"
#include "kernels/check.h"

namespace ladder {
namespace {

using nlohmann::json;

constexpr double kEpsilon = 1e-5;  // of norms, in every backend

/// Tokens for where a text begins and where it ends, of a tokenizer. Bytes have none.
struct Ends {
  int64_t vocab, begin, end;
};
constexpr std::array kEnds = {Ends{50257, 50256, 50256}, Ends{32000, 1, 2},
                              Ends{128256, 128000, 128001}};

// Names in transformers for GELU in its tanh form, which kernels/kernels.h defines.
constexpr std::array<std::string_view, 4> kTanhGelu = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast",
                                                       "gelu_accurate"};

/// A size of the model, with the names that transformers accept for it.
struct Size {
  const char* key;
  const char* alias;  ///< null: none
  int64_t standard;   ///< where a config.json leaves it out; 0: whatever is here
  int64_t (*here)(const GptConfig&);
  const char* flag;  ///< that sets it
};
constexpr std::array kGpt2Sizes = {
    Size{"n_layer", "num_hidden_layers", 12, [](const auto& c) { return c.layers; }, "--layers"},
    Size{"n_head", "num_attention_heads", 12, [](const auto& c) { return c.heads; }, "--heads"},
    Size{"n_embd", "hidden_size", 768, [](const auto& c) { return c.channels; }, "--channels"},
    Size{"n_positions", "max_position_embeddings", 1024, [](const auto& c) { return c.positions; },
         "--model"},
    Size{"vocab_size", nullptr, 50257, [](const auto& c) { return c.vocab; }, "--model"},
};
constexpr std::array kLlamaSizes = {
    Size{"num_hidden_layers", nullptr, 32, [](const auto& c) { return c.layers; }, "--layers"},
    Size{"num_attention_heads", nullptr, 32, [](const auto& c) { return c.heads; }, "--heads"},
    Size{"hidden_size", nullptr, 4096, [](const auto& c) { return c.channels; }, "--channels"},
    Size{"vocab_size", nullptr, 32000, [](const auto& c) { return c.vocab; }, "--model"},
};
constexpr std::array kMixtralSizes = {
    Size{"num_hidden_layers", nullptr, 32, [](const auto& c) { return c.layers; }, "--layers"},
    Size{"num_attention_heads", nullptr, 32, [](const auto& c) { return c.heads; }, "--heads"},
    Size{"hidden_size", nullptr, 4096, [](const auto& c) { return c.channels; }, "--channels"},
    Size{"intermediate_size", nullptr, 14336, [](const auto& c) { return c.expert_inner(); },
         "--hidden"},
    Size{"num_key_value_heads", nullptr, 8, [](const auto& c) { return c.groups(); }, "--kv-heads"},
    Size{"num_local_experts", "num_experts", 8, [](const auto& c) { return c.experts.count; },
         "--experts"},
    Size{"num_experts_per_tok", nullptr, 2, [](const auto& c) { return c.experts.chosen; },
         "--experts-per-token"},
    Size{"vocab_size", nullptr, 32000, [](const auto& c) { return c.vocab; }, "--model"},
};

/// A key that may be left out, or null.
json value_or(const json& theirs, const char* key, const json& standard) {
  const json there = theirs.value(key, standard);
  return there.is_null() ? standard : there;
}

void check_size(const json& theirs, const Size& size, const GptConfig& config) {
  const json here = size.here(config);
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

/// transformers refuse a config.json that does not say what it configures.
std::string model_type(const json& theirs, const std::vector<std::string>& legal) {
  const json type = theirs.value("model_type", json());
  for (const std::string& one : legal)
    if (type == one) return one;
  throw UserError("model_type is {}; legal for this model {} \"{}\"",
                  theirs.contains("model_type") ? shown(type) : "missing",
                  legal.size() == 1 ? "is" : "are", fmt::join(legal, "\" and \""));
}

/// What Ladder computes, where transformers know other ways.
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

void check_epsilon(const json& theirs, const char* key, double standard) {
  const json there = theirs.value(key, json(standard));
  // It may have been a float on its way into the file.
  if (!there.is_number() || there.get<float>() != static_cast<float>(kEpsilon))
    throw UserError("{} is {}, but Ladder computes with {}", key, shown(there), kEpsilon);
}

/// tie_word_embeddings.
bool tied_head(const json& theirs, bool standard, const GptConfig& config) {
  const json tied = theirs.value("tie_word_embeddings", json(standard));
  if (!tied.is_boolean())
    throw UserError("tie_word_embeddings is {}; legal are true and false", shown(tied));
  if (config.tied_head && !tied.get<bool>())
    throw UserError("tie_word_embeddings is false; legal is a run without --tied-head");
  return tied.get<bool>();
}

json ends_of(const GptConfig& config) {
  for (const Ends& ends : kEnds)
    if (ends.vocab == config.vocab) return {ends.begin, ends.end};
  return {nullptr, nullptr};
}

// ---- RoPE ---------------------------------------------------------------------------------------

/// What transformers call `rope_scaling`; null: none.
json scaling_of(const Rope& rope) {
  if (rope.factor == 1) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", rope.factor},
          {"low_freq_factor", rope.low},
          {"high_freq_factor", rope.high},
          {"original_max_position_embeddings", rope.original}};
}

void check_value(const std::string& what, const json& there, const json& here) {
  if (there != here)
    throw UserError("{} is {}, but this model has {}; see --model", what, shown(there),
                    shown(here));
}

/// One description of the angles. @param in where it stands, for messages
void check_angles(const json& angles, const Rope& rope, const std::string& in) {
  const json here = rope.factor == 1 ? json{{"rope_type", "default"}} : scaling_of(rope);
  const json& type = here.at("rope_type");
  check_value("rope_theta" + in, angles.at("rope_theta"), rope.theta);
  check_value("rope_type" + in, value_or(angles, "rope_type", value_or(angles, "type", "default")),
              type);
  check_value("type" + in, value_or(angles, "type", type), type);
  for (const auto& [key, value] : here.items())
    if (key != "rope_type") check_value(key + in, value_or(angles, key.c_str(), nullptr), value);
}

// transformers 4 reads rope_scaling, and rope_theta beside it. 5 reads rope_scaling or else
// rope_parameters, and rope_theta in there or else beside it. A file may have several of these, and
// then each must describe this model.
void check_rope(const json& theirs, const Rope& rope, double standard = 10000) {
  check_value("rope_theta", value_or(theirs, "rope_theta", rope.theta), rope.theta);
  const char* first = "original_max_position_embeddings";
  if (rope.factor != 1) check_value(first, value_or(theirs, first, rope.original), rope.original);
  const json beside = {{"rope_theta", value_or(theirs, "rope_theta", standard)}};
  bool described = false;
  for (const char* place : {"rope_parameters", "rope_scaling"}) {
    const json angles = value_or(theirs, place, json::object());
    if (!angles.is_object()) throw UserError("{} is {}, no object", place, shown(angles));
    if (angles.empty()) continue;
    described = true;
    json all = beside;
    all.update(angles);
    check_angles(all, rope, fmt::format(" in {}", place));
  }
  if (!described) check_angles(beside, rope, "");
  check_function(theirs, "partial_rotary_factor", 1.0, 1.0);
}

// ---- both ways, of each family ------------------------------------------------------------------

json gpt2_config(const GptConfig& config) {
  return {
      {"architectures", json::array({"GPT2LMHeadModel"})},
      {"model_type", "gpt2"},
      {"n_layer", config.layers},
      {"n_head", config.heads},
      {"n_embd", config.channels},
      {"n_inner", config.inner()},
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
      {"bos_token_id", ends_of(config)[0]},
      {"eos_token_id", ends_of(config)[1]},
      {"torch_dtype", "float32"},
  };
}

bool check_gpt2(const json& theirs, const GptConfig& config) {
  model_type(theirs, {"gpt2"});
  for (const Size& size : kGpt2Sizes) check_size(theirs, size, config);
  const json inner = config.inner();
  if (theirs.contains("n_inner") && !theirs.at("n_inner").is_null())
    check_function(theirs, "n_inner", inner, inner);
  check_activation(theirs);
  check_epsilon(theirs, "layer_norm_epsilon", kEpsilon);
  check_function(theirs, "scale_attn_weights", true, true);
  check_function(theirs, "scale_attn_by_inverse_layer_idx", false, false);
  check_function(theirs, "add_cross_attention", false, false);
  return tied_head(theirs, true, config);
}

json llama_config(const GptConfig& config) {
  return {
      {"architectures", json::array({"LlamaForCausalLM"})},
      {"model_type", "llama"},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.groups()},
      {"hidden_size", config.channels},
      {"intermediate_size", config.inner()},
      {"max_position_embeddings", std::max(config.positions, config.seq_len)},
      {"vocab_size", config.vocab},
      {"hidden_act", "silu"},
      {"rms_norm_eps", kEpsilon},
      {"rope_theta", config.rope.theta},
      {"rope_scaling", scaling_of(config.rope)},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"attention_dropout", 0.0},
      {"tie_word_embeddings", config.tied_head},
      {"bos_token_id", ends_of(config)[0]},
      {"eos_token_id", ends_of(config)[1]},
      {"torch_dtype", "float32"},
  };
}

/// A token sees `sliding_window` tokens, itself among them; null: all before it.
void check_window(const json& theirs, const json& standard, int64_t T) {
  const json window = theirs.value("sliding_window", standard);
  if (window.is_null() || (window.is_number_integer() && window >= T)) return;
  throw UserError(
      "sliding_window is {}, but this run has sequences of {} tokens; legal is a --seq-len of at "
      "most sliding_window",
      shown(window), T);
}

bool check_llama(const json& theirs, const GptConfig& config) {
  const bool mistral = model_type(theirs, {"llama", "mistral"}) == "mistral";
  for (const Size& size : kLlamaSizes) check_size(theirs, size, config);
  const auto check = [&](const char* key, int64_t standard, int64_t here) {
    check_value(key, value_or(theirs, key, standard), here);
  };
  check("intermediate_size", mistral ? 14336 : 11008, config.inner());
  const bool all_heads = !mistral || theirs.contains("num_key_value_heads");  // if null
  check("num_key_value_heads", all_heads ? config.heads : 8, config.groups());
  if (mistral) check_window(theirs, 4096, config.seq_len);
  check("head_dim", config.head_size(), config.head_size());
  check_function(theirs, "hidden_act", "silu", "silu");
  check_epsilon(theirs, "rms_norm_eps", 1e-6);
  check_rope(theirs, config.rope);
  check_function(theirs, "layer_types", nullptr, nullptr);  // with them it is a Ministral
  check_function(theirs, "attention_bias", false, false);
  check_function(theirs, "mlp_bias", false, false);
  return tied_head(theirs, false, config);
}

json mixtral_config(const GptConfig& config) {
  json all = llama_config(config);
  all.update({{"architectures", json::array({"MixtralForCausalLM"})},
              {"model_type", "mixtral"},
              {"intermediate_size", config.expert_inner()},
              {"num_local_experts", config.experts.count},
              {"num_experts_per_tok", config.experts.chosen},
              {"sliding_window", nullptr},
              {"router_jitter_noise", 0.0}});
  return all;
}

bool check_mixtral(const json& theirs, const GptConfig& config) {
  model_type(theirs, {"mixtral"});
  for (const Size& size : kMixtralSizes) check_size(theirs, size, config);
  const json head = config.head_size();
  check_value("head_dim", value_or(theirs, "head_dim", head), head);
  check_function(theirs, "hidden_act", "silu", "silu");
  check_epsilon(theirs, "rms_norm_eps", 1e-5);
  check_rope(theirs, config.rope, 1e6);
  check_window(theirs, nullptr, config.seq_len);
  check_function(theirs, "router_jitter_noise", 0.0, 0.0);
  return tied_head(theirs, false, config);
}

}  // namespace

json hf_config(const GptConfig& config) {
  switch (family(config)) {
    case Family::Gpt2: return gpt2_config(config);
    case Family::Llama: return llama_config(config);
    case Family::Mixtral: return mixtral_config(config);
    case Family::Mixture: return {{"model_type", "ladder"}, {"vocab_size", config.vocab}};
  }
  return {};
}

bool check_hf_config(const json& theirs, const GptConfig& config) {
  if (!theirs.is_object()) throw UserError("not the configuration of a model");
  switch (family(config)) {
    case Family::Gpt2: return check_gpt2(theirs, config);
    case Family::Llama: return check_llama(theirs, config);
    case Family::Mixtral: return check_mixtral(theirs, config);
    case Family::Mixture: break;
  }
  CHECK(false, "a mixture is no model of transformers");
  return false;
}

}  // namespace ladder
