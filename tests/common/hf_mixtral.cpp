// A Mixtral as Hugging Face has it: names and rows of experts, config.json.
#include <cmath>
#include <cstring>
#include <set>

#include "tests/common/hf_model.h"

namespace ladder {
namespace {

using nlohmann::json;

constexpr int64_t C = 16, F = 8;

/// Two layers of three experts.
GptConfig small_mixtral() {
  GptConfig config = preset("moe-nano");
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.channels = C;
  config.hidden = F;
  config.experts.count = 3;
  config.vocab = 5;
  config.padded_vocab = 8;
  return config;
}

class HfMixtral : public HfModel {
 protected:
  HfMixtral() : HfModel(small_mixtral()) {}
};

TEST_F(HfMixtral, HasTheTensorsOfTheirs) {
  std::set<std::string> wanted{"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"};
  for (const std::string l : {"0", "1"}) {
    const std::string layer = "model.layers." + l + ".", moe = layer + "block_sparse_moe.";
    for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "self_attn.o_proj", "input_layernorm", "post_attention_layernorm"})
      wanted.insert(layer + name + ".weight");
    wanted.insert(moe + "gate.weight");
    for (const std::string e : {"0", "1", "2"})
      for (const char* name : {"w1", "w2", "w3"})
        wanted.insert(moe + "experts." + e + "." + name + ".weight");
  }
  std::set<std::string> found;
  const SafetensorsReader file(path_);
  for (const auto& [name, entry] : file.entries()) found.insert(name);
  EXPECT_EQ(found, wanted);
}

TEST_F(HfMixtral, GateAndUpOfAnExpertAlternateHere) {
  const std::string at = "model.layers.1.block_sparse_moe.experts.2.";
  const auto* both = ours(at + "w13.weight").data<float>();
  const auto gate = theirs(at + "w1.weight", {F, C}), up = theirs(at + "w3.weight", {F, C});
  for (size_t f = 0; f < F; ++f) {
    EXPECT_EQ(std::memcmp(&gate[f * C], both + 2 * f * C, C * 4), 0);
    EXPECT_EQ(std::memcmp(&up[f * C], both + (2 * f + 1) * C, C * 4), 0);
  }
  const auto down = theirs(at + "w2.weight", {C, F});
  EXPECT_EQ(std::memcmp(down.data(), ours(at + "w2.weight").ptr, down.size() * 4), 0);
}

TEST_F(HfMixtral, RoundTrip) {
  write_file(dir_ / "config.json", hf_config(small_mixtral()).dump());
  SmallModel other{.config = small_mixtral()};
  std::fill_n(other.params.data<float>(), other.params.size(), std::nanf(""));
  EXPECT_EQ(load(other), "");
  expect_same(other);
}

TEST_F(HfMixtral, AnotherModelIsRefusedWithBothValues) {
  EXPECT_EQ(refusal("num_local_experts", 8),
            "num_local_experts is 8, but this model has 3; see --experts");
  EXPECT_EQ(refusal("num_experts_per_tok", 1),
            "num_experts_per_tok is 1, but this model has 2; see --experts-per-token");
  EXPECT_EQ(refusal("intermediate_size", 9),
            "intermediate_size is 9, but this model has 8; see --hidden");
  EXPECT_EQ(refusal("num_key_value_heads", 4),
            "num_key_value_heads is 4, but this model has 2; see --kv-heads");
  const int64_t T = small_mixtral().seq_len;
  EXPECT_EQ(refusal("sliding_window", T), "") << "it holds the whole sequence";
  EXPECT_NE(refusal("sliding_window", T - 1), "");
  EXPECT_NE(refusal("router_jitter_noise", 0.1), "");
  EXPECT_EQ(refusal("model_type", "llama"),
            "model_type is \"llama\"; legal for this model is \"mixtral\"");
  EXPECT_NE(refusal("model_type", nullptr), "");
  EXPECT_NE(refusal("rope_theta", 1e6), "");
  // What a config.json leaves out is that of Mixtral 8x7B.
  EXPECT_FALSE(
      check_hf_config({{"model_type", "mixtral"}, {"vocab_size", 32000}}, preset("mixtral-8x7b")));
}

// A router that transformers' Mixtral does not have, and shared experts: a mixture of parts.
TEST_F(HfMixtral, AnotherRouterIsNoModelOfTheirs) {
  for (const Experts experts : {Experts{.count = 3, .chosen = 2, .shared = 1},
                                Experts{.count = 3, .chosen = 2, .router = Router::Sigmoid},
                                Experts{.count = 3, .chosen = 2, .renormalize = false}}) {
    GptConfig config = small_mixtral();
    config.experts = experts;
    SmallModel model{.config = config};
    EXPECT_NE(load(model).find("a mixture of the parts"), std::string::npos);
    model.fill(2);
    model.save(dir_ / "run", 3);
    SmallModel other{.config = config};
    EXPECT_EQ(other.load(dir_ / "run"), 3);
    EXPECT_EQ(other.bytes(), model.bytes());
    SmallModel plain{.config = small_mixtral()};
    EXPECT_NE(user_error([&] { plain.load(dir_ / "run"); }), "");
    std::filesystem::remove_all(dir_ / "run");
  }
}

}  // namespace
}  // namespace ladder
