// A LLaMA as Hugging Face has it: names, rows, config.json.
#include <cmath>
#include <cstring>
#include <set>

#include "tests/common/hf_model.h"

namespace ladder {
namespace {

using nlohmann::json;

constexpr int64_t C = 16, NH = 4, NKV = 2, HS = 4, F = 6;

/// Two layers; four heads in two groups.
GptConfig small_llama() {
  GptConfig config = preset("llama-nano");
  config.layers = 2;
  config.heads = NH;
  config.kv_heads = NKV;
  config.channels = C;
  config.hidden = F;
  config.vocab = 5;
  config.padded_vocab = 8;
  return config;
}

class HfLlama : public HfModel {
 protected:
  HfLlama() : HfModel(small_llama()) {}
  /// Row `row` of theirs is row `other` of ours.
  static void expect_row(const std::vector<float>& theirs, int64_t row, const float* ours,
                         int64_t other) {
    EXPECT_EQ(std::memcmp(&theirs[static_cast<size_t>(row * C)], ours + other * C, C * 4), 0)
        << row << " " << other;
  }
};

TEST_F(HfLlama, HasTheTensorsOfTheirs) {
  std::set<std::string> wanted{"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"};
  for (const std::string l : {"0", "1"})
    for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
                             "input_layernorm", "post_attention_layernorm"})
      wanted.insert("model.layers." + l + "." + name + ".weight");
  std::set<std::string> found;
  const SafetensorsReader file(path_);
  for (const auto& [name, entry] : file.entries()) found.insert(name);
  EXPECT_EQ(found, wanted);
}

TEST_F(HfLlama, HeadsOfAGroupLieTogetherHereAndApartThere) {
  const std::string at = "model.layers.1.self_attn.";
  const auto* qkv = ours(at + "qkv_proj.weight").data<float>();
  const auto q = theirs(at + "q_proj.weight", {NH * HS, C});
  const auto k = theirs(at + "k_proj.weight", {NKV * HS, C});
  const auto v = theirs(at + "v_proj.weight", {NKV * HS, C});
  int64_t row = 0;
  for (int64_t g = 0; g < NKV; ++g) {
    for (int64_t j = 0; j < 2 * HS; ++j) expect_row(q, g * 2 * HS + j, qkv, row++);
    for (int64_t d = 0; d < HS; ++d) expect_row(k, g * HS + d, qkv, row++);
    for (int64_t d = 0; d < HS; ++d) expect_row(v, g * HS + d, qkv, row++);
  }
}

TEST_F(HfLlama, GateAndUpAlternateHere) {
  const std::string at = "model.layers.0.mlp.";
  const auto* both = ours(at + "gate_up_proj.weight").data<float>();
  const auto gate = theirs(at + "gate_proj.weight", {F, C});
  const auto up = theirs(at + "up_proj.weight", {F, C});
  for (int64_t f = 0; f < F; ++f) {
    expect_row(gate, f, both, 2 * f);
    expect_row(up, f, both, 2 * f + 1);
  }
  theirs(at + "down_proj.weight", {C, F});
}

TEST_F(HfLlama, RoundTrip) {
  write_file(dir_ / "config.json", hf_config(small_llama()).dump());
  SmallModel other{.config = small_llama()};
  std::fill_n(other.params.data<float>(), other.params.size(), std::nanf(""));
  EXPECT_EQ(load(other), "");
  expect_same(other);
}

TEST_F(HfLlama, AnotherModelIsRefusedWithBothValues) {
  EXPECT_EQ(refusal("num_key_value_heads", 1),
            "num_key_value_heads is 1, but this model has 2; see --model");
  EXPECT_EQ(refusal("num_key_value_heads", nullptr),
            "num_key_value_heads is 4, but this model has 2; see --model");
  EXPECT_EQ(refusal("intermediate_size", 8),
            "intermediate_size is 8, but this model has 6; see --model");
  EXPECT_EQ(refusal("head_dim", 8), "head_dim is 8, but this model has 4; see --model");
  EXPECT_EQ(refusal("rms_norm_eps", 1e-6), "rms_norm_eps is 1e-06, but Ladder computes with 1e-05");
  EXPECT_EQ(refusal("hidden_act", "gelu"),
            "hidden_act is \"gelu\", but Ladder computes with \"silu\"");
  EXPECT_EQ(refusal("attention_bias", true),
            "attention_bias is true, but Ladder computes with false");
  EXPECT_EQ(refusal("model_type", "gpt2"),
            "model_type is \"gpt2\"; legal for this model are \"llama\" and \"mistral\"");
  json untyped = hf_config(small_llama());
  untyped.erase("model_type");
  EXPECT_USER_ERROR(check_hf_config(untyped, small_llama()),
                    "model_type is missing; legal for this model are \"llama\" and \"mistral\"");
  EXPECT_EQ(refusal("max_position_embeddings", 7), "") << "no table";
  EXPECT_NE(refusal("tie_word_embeddings", 1), "");
}

// A Mistral computes what a LLaMA does as long as its window holds the whole sequence.
TEST_F(HfLlama, AMistralIsReadUnlessItsWindowIsShorterThanTheSequence) {
  const GptConfig config = small_llama();
  json theirs = hf_config(config);
  theirs["model_type"] = "mistral";
  const auto with_window = [&](const json& window) {
    theirs["sliding_window"] = window;
    return user_error([&] { check_hf_config(theirs, config); });
  };
  EXPECT_EQ(with_window(nullptr), "");
  EXPECT_EQ(with_window(config.seq_len), "");
  EXPECT_EQ(
      with_window(config.seq_len - 1),
      "sliding_window is 15, but this run has sequences of 16 tokens; legal is a --seq-len of "
      "at most sliding_window");
  EXPECT_NE(with_window("none"), "");

  // What a config.json leaves out is not what a LLaMA's would be.
  const GptConfig large = preset("mistral-7b");
  const json least = {{"model_type", "mistral"},
                      {"rms_norm_eps", 1e-5},
                      {"sliding_window", nullptr},
                      {"rope_theta", large.rope.theta},
                      {"vocab_size", large.vocab}};
  EXPECT_FALSE(check_hf_config(least, large));
  json no_window = least;
  no_window.erase("sliding_window");  // 4096
  GptConfig long_sequences = large;
  long_sequences.seq_len = 4097;
  EXPECT_USER_ERROR(check_hf_config(no_window, long_sequences), "sliding_window is 4096, but");
}

TEST_F(HfLlama, OtherAnglesAreRefusedWithBothValues) {
  EXPECT_EQ(refusal("rope_theta", 5e5),
            "rope_theta is 500000.0, but this model has 10000.0; see --model");
  EXPECT_EQ(refusal("rope_scaling", {{"type", "linear"}, {"factor", 2}}),
            "rope_type is \"linear\", but this model has \"default\"; see --model");
  EXPECT_EQ(refusal("rope_scaling", "linear"), "rope_scaling is \"linear\", no object");
  EXPECT_EQ(refusal("rope_scaling", json::object()), "") << "none";

  const GptConfig big = preset("llama3-405b");
  json config = hf_config(big);
  EXPECT_FALSE(check_hf_config(config, big));
  config["original_max_position_embeddings"] = 4096;  // which transformers 5 prefer
  EXPECT_USER_ERROR(check_hf_config(config, big), "original_max_position_embeddings is 4096, but");
  config.erase("original_max_position_embeddings");
  config["rope_scaling"]["factor"] = 32.0;
  EXPECT_USER_ERROR(check_hf_config(config, big), "factor is 32.0, but this model has 8.0");
  config["rope_scaling"] = nullptr;
  EXPECT_USER_ERROR(check_hf_config(config, big), "rope_type is \"default\"");
}

// transformers 5 writes rope_parameters.
TEST_F(HfLlama, AnglesMayStandInRopeParameters) {
  EXPECT_EQ(refusal("rope_parameters", {{"rope_theta", 1e4}, {"rope_type", "default"}}), "");
  EXPECT_EQ(refusal("rope_parameters", {{"rope_theta", 1e6}, {"rope_type", "default"}}),
            "rope_theta is 1000000.0, but this model has 10000.0; see --model");
  EXPECT_EQ(refusal("rope_parameters", {{"rope_type", "linear"}, {"factor", 4.0}}),
            "rope_type is \"linear\", but this model has \"default\"; see --model");
}

// Which of several descriptions transformers read depends on their version.
TEST_F(HfLlama, EachDescriptionOfAnglesIsThatOfTheModel) {
  json both = hf_config(small_llama());
  both["rope_parameters"] = {{"rope_theta", 1e4}, {"rope_type", "default"}};
  EXPECT_FALSE(check_hf_config(both, small_llama()));
  both["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_USER_ERROR(check_hf_config(both, small_llama()), "rope_type is \"linear\"");
  both["rope_scaling"] = {{"rope_type", "default"}, {"type", "linear"}};
  EXPECT_USER_ERROR(check_hf_config(both, small_llama()), "type is \"linear\"");
  both["rope_scaling"] = nullptr;
  both["rope_theta"] = 5e5;
  EXPECT_USER_ERROR(check_hf_config(both, small_llama()), "rope_theta is 500000.0");
}

TEST_F(HfLlama, AMixtureIsNoModelOfTheirs) {
  GptConfig mixture = small_llama();
  mixture.norm = Norm::Layer;
  SmallModel model{.config = mixture};
  EXPECT_NE(load(model).find("a mixture of the parts"), std::string::npos);
  EXPECT_EQ(hf_config(mixture).at("model_type"), "ladder");
  model.fill(2);
  model.save(dir_ / "run", 3);
  SmallModel other{.config = mixture};
  EXPECT_EQ(other.load(dir_ / "run"), 3);
  EXPECT_EQ(other.bytes(), model.bytes());
}

}  // namespace
}  // namespace ladder
