#include "common/save/hf_config.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/json.h"
#include "kernels/check.h"

namespace ladder {
namespace {

using nlohmann::json;

constexpr double kEpsilon = 1e-5;  // of norms, in all backends

/// The tokens that begin and end a text, by the size of the vocabulary. Bytes have none.
struct Ends {
  int64_t vocab, begin, end;
};
constexpr std::array kEnds = {Ends{50257, 50256, 50256}, Ends{32000, 1, 2},
                              Ends{128256, 128000, 128001}};

// The names that transformers use for GELU in its tanh form, which kernels/kernels.h defines.
constexpr std::array<std::string_view, 4> kTanhGelu = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast",
                                                       "gelu_accurate"};

/// A key of config.json that must say what hf_config() says.
struct Key {
  const char* name;
  json standard;               ///< what transformers take where it is left out
  const char* flag = nullptr;  ///< that sets a size; null: Ladder computes in one way alone
};
using Keys = std::vector<Key>;

/// A key that may be missing or null.
json value_or(const json& theirs, const char* key, const json& standard) {
  const json there = theirs.value(key, standard);
  return there.is_null() ? standard : there;
}

void check_keys(const json& theirs, const json& ours, const Keys& keys) {
  for (const auto& [name, standard, flag] : keys) {
    const json there = value_or(theirs, name, standard), here = ours.at(name);
    // A float may have been narrower on its way into the file.
    const bool floats = there.is_number() && here.is_number_float();
    if (floats ? there.get<float>() == here.get<float>() : there == here) continue;
    if (flag)
      throw UserError("{} is {}, but this model has {}; see {}", name, shown(there), shown(here),
                      flag);
    throw UserError("{} is {}, but Ladder computes with {}", name, shown(there), shown(here));
  }
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

/// The value of `rope_scaling` in transformers; null: none.
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

/// @param there one description of the angles, with rope_theta
void check_angles(json there, const Rope& rope) {
  json here = rope.factor == 1 ? json{{"rope_type", "default"}} : scaling_of(rope);
  const json type = here.at("rope_type");
  here["rope_theta"] = rope.theta;
  if (!there.contains("rope_type")) there["rope_type"] = value_or(there, "type", "default");
  check_value("rope_type", there.at("rope_type"), type);     // it explains the others
  check_value("type", value_or(there, "type", type), type);  // its old name
  for (const auto& [key, value] : here.items())
    check_value(key, value_or(there, key.c_str(), nullptr), value);
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
  for (const char* place : {"rope_scaling", "rope_parameters"}) {
    const json angles = value_or(theirs, place, json::object());
    if (!angles.is_object()) throw UserError("{} is {}, no object", place, shown(angles));
    if (angles.empty()) continue;
    json there = beside;
    there.update(angles);
    check_angles(there, rope);
    described = true;
  }
  if (!described) check_angles(beside, rope);
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
      {"tie_word_embeddings", config.tied_head},  // without this key it would be true
      {"attn_pdrop", 0.0},
      {"embd_pdrop", 0.0},
      {"resid_pdrop", 0.0},
      {"bos_token_id", ends_of(config)[0]},
      {"eos_token_id", ends_of(config)[1]},
      {"torch_dtype", "float32"},
  };
}

bool check_gpt2(json theirs, const GptConfig& config) {
  model_type(theirs, {"gpt2"});
  constexpr const char* kActivation = "activation_function";
  const json activation = theirs.value(kActivation, json());
  if (std::ranges::any_of(kTanhGelu,
                          [&](std::string_view name) { return activation == json(name); }))
    theirs[kActivation] = "gelu_new";
  check_keys(theirs, gpt2_config(config),
             {{"n_layer", 12, "--layers"},
              {"n_head", 12, "--heads"},
              {"n_embd", 768, "--channels"},
              {"n_positions", 1024, "--model"},
              {"vocab_size", 50257, "--vocab"},
              {"n_inner", config.inner()},  // four times the width
              {kActivation, "gelu_new"},
              {"layer_norm_epsilon", 1e-5},
              {"scale_attn_weights", true},
              {"scale_attn_by_inverse_layer_idx", false},
              {"add_cross_attention", false}});
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

/// A token sees `sliding_window` tokens, including itself. Null: all tokens before it.
void check_window(const json& theirs, const json& standard, int64_t T) {
  const json window = theirs.value("sliding_window", standard);
  if (window.is_null() || (window.is_number_integer() && window >= T)) return;
  throw UserError(
      "sliding_window is {}, but this run has sequences of {} tokens; legal is a --seq-len of at "
      "most sliding_window",
      shown(window), T);
}

/// What both families of RMSNorm and RoPE have.
void check_llama_keys(const json& theirs, json ours, const GptConfig& config, Keys more) {
  ours.update({{"head_dim", config.head_size()}, {"partial_rotary_factor", 1.0}});
  for (const Key& key : Keys{{"num_hidden_layers", 32, "--layers"},
                             {"num_attention_heads", 32, "--heads"},
                             {"hidden_size", 4096, "--channels"},
                             {"vocab_size", 32000, "--vocab"},
                             {"head_dim", config.head_size(), "--model"},
                             {"hidden_act", "silu"},
                             {"partial_rotary_factor", 1.0}})
    more.push_back(key);
  check_keys(theirs, ours, more);
}

bool check_llama(const json& theirs, const GptConfig& config) {
  const bool mistral = model_type(theirs, {"llama", "mistral"}) == "mistral";
  const bool all_heads = !mistral || theirs.contains("num_key_value_heads");  // if null
  json ours = llama_config(config);
  ours["layer_types"] = nullptr;  // with them it is a Ministral
  check_llama_keys(theirs, ours, config,
                   {{"intermediate_size", mistral ? 14336 : 11008, "--model"},
                    {"num_key_value_heads", all_heads ? config.heads : 8, "--model"},
                    {"rms_norm_eps", 1e-6},
                    {"layer_types", nullptr},
                    {"attention_bias", false},
                    {"mlp_bias", false}});
  if (mistral) check_window(theirs, 4096, config.seq_len);
  check_rope(theirs, config.rope);
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
  check_llama_keys(theirs, mixtral_config(config), config,
                   {{"intermediate_size", 14336, "--hidden"},
                    {"num_key_value_heads", 8, "--kv-heads"},
                    {"num_local_experts", 8, "--experts"},
                    {"num_experts_per_tok", 2, "--experts-per-token"},
                    {"rms_norm_eps", 1e-5},
                    {"router_jitter_noise", 0.0}});
  check_rope(theirs, config.rope, 1e6);
  check_window(theirs, nullptr, config.seq_len);
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

GptConfig config_of_hf(const json& theirs) {
  const std::string type = model_type(theirs, {"gpt2", "llama", "mistral", "mixtral"});
  const bool gpt2 = type == "gpt2";
  const auto size = [&](const char* of_gpt2, const char* of_llama) {
    return theirs.at(gpt2 ? of_gpt2 : of_llama).get<int64_t>();
  };
  GptConfig config{.name = type,
                   .layers = size("n_layer", "num_hidden_layers"),
                   .heads = size("n_head", "num_attention_heads"),
                   .channels = size("n_embd", "hidden_size"),
                   .seq_len = size("n_positions", "max_position_embeddings"),
                   .positions = size("n_positions", "max_position_embeddings"),
                   .vocab = size("vocab_size", "vocab_size"),
                   .padded_vocab = padded(size("vocab_size", "vocab_size"))};
  config.tied_head = theirs.value("tie_word_embeddings", gpt2);
  if (gpt2) return config;
  config.kv_heads = value_or(theirs, "num_key_value_heads", config.heads);
  config.hidden = theirs.at("intermediate_size");
  config.norm = Norm::Rms;
  config.mlp = Mlp::SwiGlu;
  config.position = Position::Rope;
  config.bias = false;
  json angles =
      value_or(theirs, "rope_parameters", value_or(theirs, "rope_scaling", json::object()));
  config.rope.theta =
      value_or(angles, "rope_theta", value_or(theirs, "rope_theta", config.rope.theta));
  if (value_or(angles, "rope_type", "default") == "llama3")
    config.rope = {.theta = config.rope.theta,
                   .factor = angles.at("factor"),
                   .low = angles.at("low_freq_factor"),
                   .high = angles.at("high_freq_factor"),
                   .original = angles.at("original_max_position_embeddings")};
  if (type == "mixtral")
    config.experts = {.count = theirs.at("num_local_experts"),
                      .chosen = theirs.at("num_experts_per_tok")};
  return config;
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
