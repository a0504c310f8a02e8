// A LLaMA and a Mixtral as Hugging Face has them: names, rows, config.json.
#include "tests/common/hf_model.h"

namespace ladder {
namespace {

using nlohmann::json;

constexpr int64_t C = 16, NH = 4, NKV = 2, HS = 4, F = 8;

GptConfig with_hidden(GptConfig config) {
  config.hidden = F;
  return config;
}
GptConfig small_llama() { return with_hidden(small_of("llama-nano", C)); }
GptConfig small_mixtral() {
  GptConfig config = with_hidden(small_of("moe-nano", C));
  config.experts.count = 3;
  return config;
}

class HfRows : public HfModel {
 protected:
  explicit HfRows(const GptConfig& config) : HfModel(config) {}

  /// The weights beside those of blocks, and these of each block.
  static std::set<std::string> wanted(const std::vector<std::string>& of_block) {
    std::set<std::string> all{"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"};
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
      for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                               "self_attn.o_proj", "input_layernorm", "post_attention_layernorm"})
        all.insert(layer + name + ".weight");
      for (const std::string& name : of_block) all.insert(layer + name + ".weight");
    }
    return all;
  }
  /// Row `row` of theirs is row `other` of ours.
  static void expect_row(const std::vector<float>& theirs, int64_t row, const float* ours,
                         int64_t other) {
    EXPECT_EQ(std::memcmp(&theirs[static_cast<size_t>(row * C)], ours + other * C, C * 4), 0)
        << row << " " << other;
  }
  /// Gate and up are one matrix here, whose rows alternate.
  void expect_alternate(const std::string& both, const std::string& gate, const std::string& up) {
    const auto* mine = ours(both).data<float>();
    const auto gates = theirs(gate, {F, C}), ups = theirs(up, {F, C});
    for (int64_t f = 0; f < F; ++f) {
      expect_row(gates, f, mine, 2 * f);
      expect_row(ups, f, mine, 2 * f + 1);
    }
  }
};

class HfLlama : public HfRows {
 protected:
  HfLlama() : HfRows(small_llama()) {}
};
class HfMixtral : public HfRows {
 protected:
  HfMixtral() : HfRows(small_mixtral()) {}
};

TEST_F(HfLlama, HasTheTensorsOfTheirs) {
  EXPECT_EQ(names(), wanted({"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}));
}

TEST_F(HfMixtral, HasTheTensorsOfTheirs) {
  std::vector<std::string> of_block{"block_sparse_moe.gate"};
  for (const char* e : {"0", "1", "2"})
    for (const char* name : {"w1", "w2", "w3"})
      of_block.push_back(fmt::format("block_sparse_moe.experts.{}.{}", e, name));
  EXPECT_EQ(names(), wanted(of_block));
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
  expect_alternate(at + "gate_up_proj.weight", at + "gate_proj.weight", at + "up_proj.weight");
  theirs(at + "down_proj.weight", {C, F});
}

TEST_F(HfMixtral, GateAndUpOfAnExpertAlternateHere) {
  const std::string at = "model.layers.1.block_sparse_moe.experts.2.";
  expect_alternate(at + "w13.weight", at + "w1.weight", at + "w3.weight");
  const auto down = theirs(at + "w2.weight", {C, F});
  EXPECT_EQ(std::memcmp(down.data(), ours(at + "w2.weight").ptr, down.size() * 4), 0);
}

// What the file leaves out has the value of transformers.
TEST_F(HfLlama, KeysMayBeLeftOut) {
  EXPECT_EQ(refusal("num_key_value_heads", nullptr),
            "num_key_value_heads is 4, but this model has 2; see --model");
  EXPECT_EQ(refusal("head_dim", 8), "head_dim is 8, but this model has 4; see --model");
  json untyped = hf_config(small_llama());
  untyped.erase("model_type");
  EXPECT_USER_ERROR(check_hf_config(untyped, small_llama()),
                    "model_type is missing; legal for this model are \"llama\" and \"mistral\"");
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

TEST_F(HfMixtral, KeysMayBeLeftOut) {
  const int64_t T = small_mixtral().seq_len;
  EXPECT_EQ(refusal("sliding_window", T), "") << "it holds the whole sequence";
  EXPECT_NE(refusal("sliding_window", T - 1), "");
  // What a config.json leaves out is that of Mixtral 8x7B.
  EXPECT_FALSE(
      check_hf_config({{"model_type", "mixtral"}, {"vocab_size", 32000}}, preset("mixtral-8x7b")));
}

}  // namespace
}  // namespace ladder
