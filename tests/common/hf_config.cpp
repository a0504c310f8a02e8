// config.json: what is written describes the model, and one that describes another is refused.

#include "tests/common/hf_model.h"

namespace ladder {
namespace {

using nlohmann::json;

json written() { return hf_config(preset("tiny")); }

std::string refusal(const std::string& key, const json& value) {
  return config_refusal(preset("tiny"), key, value);
}

TEST(HfConfig, WhatIsWrittenIsAccepted) {
  for (const std::string& name : preset_names()) {
    const GptConfig config = preset(name);
    if (family(config) == Family::Mixture) continue;
    EXPECT_FALSE(check_hf_config(hf_config(config), config)) << name;
  }
}

TEST(HfConfig, SaysWhatTheModelIs) {
  const json config = written();
  EXPECT_EQ(config.at("architectures"), json::parse(R"(["GPT2LMHeadModel"])"));
  EXPECT_EQ(config.at("n_head"), 4);
  EXPECT_EQ(config.at("n_positions"), 64);
  EXPECT_EQ(config.at("vocab_size"), 256) << "bytes";
  EXPECT_EQ(config.at("eos_token_id"), json(nullptr)) << "no byte ends a text";
  EXPECT_EQ(config.at("tie_word_embeddings"), false);
  const json gpt2 = hf_config(preset("gpt2-124m"));
  EXPECT_EQ(gpt2.at("vocab_size"), 50257) << "without rows of padding";
  EXPECT_EQ(gpt2.at("eos_token_id"), 50256);
}

TEST(HfConfig, TheConfigOfPublishedGpt2IsThatModel) {
  // Parts of it as published: what is left out has the default of transformers.
  const json published = {{"activation_function", "gelu_new"},
                          {"model_type", "gpt2"},
                          {"layer_norm_epsilon", 1e-05},
                          {"n_ctx", 1024},
                          {"n_embd", 768},
                          {"n_head", 12},
                          {"n_layer", 12},
                          {"n_positions", 1024},
                          {"vocab_size", 50257}};
  EXPECT_TRUE(check_hf_config(published, preset("gpt2-124m"))) << "its head is the embedding";
  EXPECT_TRUE(check_hf_config({{"model_type", "gpt2"}}, preset("gpt2-124m"))) << "all by default";
  EXPECT_USER_ERROR(check_hf_config(json::object(), preset("gpt2-124m")),
                    "model_type is missing; legal for this model is \"gpt2\"");
  EXPECT_USER_ERROR(check_hf_config(published, preset("gpt2-350m")), "n_layer is 12");
}

TEST(HfConfig, TheSameFunctionMayBeWrittenInOtherWays) {
  EXPECT_EQ(refusal("n_inner", nullptr), "") << "four times the width";
  EXPECT_EQ(refusal("activation_function", "gelu_pytorch_tanh"), "");
  EXPECT_NE(refusal("activation_function", "gelu"), "") << "by the error function";
  EXPECT_EQ(refusal("layer_norm_epsilon", 9.999999747378752e-06), "") << "1e-5 as a float";
  EXPECT_NE(refusal("n_head", "4"), "") << "a string";
}

TEST(HfConfig, TheHeadIsTheEmbeddingUnlessItSaysNo) {
  json config = written();
  config.erase("tie_word_embeddings");
  EXPECT_TRUE(check_hf_config(config, preset("tiny")));
  EXPECT_NE(refusal("tie_word_embeddings", 1), "");
  for (const char* name : {"tiny", "llama-tiny"})
    for (const bool tied : {true, false}) {
      GptConfig model = preset(name);
      model.tied_head = tied;
      EXPECT_EQ(config_of_hf(hf_config(model)).tied_head, tied) << name;
    }
}

TEST(HfConfig, AMessageIsOneShortLine) {
  EXPECT_LT(refusal("model_type", std::string(100'000, 'x')).size(), 300u);
  EXPECT_EQ(refusal("model_type", "a\nb\x1b[31m\xc2\x9b").find_first_of("\n\x1b\x9b"),
            std::string::npos);
  EXPECT_USER_ERROR(check_hf_config(json::array(), preset("tiny")), "not the configuration");
}

}  // namespace
}  // namespace ladder
