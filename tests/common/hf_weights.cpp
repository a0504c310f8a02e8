// Weights in the layout of Hugging Face's GPT-2, held against its own definition.

#include "tests/common/hf_model.h"

namespace ladder {
namespace {

constexpr int64_t C = 8, NH = 2, HS = 4;

class Weights : public HfModel {
 protected:
  Weights() : HfModel(small_config()) {}
};

TEST_F(Weights, Conv1dIsTransposed) {
  const auto fc = theirs("transformer.h.1.mlp.c_fc.weight", {C, 4 * C});
  const float* w = ours("transformer.h.1.mlp.c_fc.weight").data<float>();
  for (int64_t n = 0; n < 4 * C; ++n)
    for (int64_t k = 0; k < C; ++k) ASSERT_EQ(fc[k * 4 * C + n], w[n * C + k]);
  theirs("transformer.h.0.attn.c_proj.weight", {C, C});
  theirs("transformer.h.0.mlp.c_proj.weight", {4 * C, C});
}

// In the model, x @ c_attn.weight + bias is split into q, k, v of C columns each, and each of
// them into heads of HS columns.
TEST_F(Weights, QkvIsNotHeadByHead) {
  const auto weight = theirs("transformer.h.0.attn.c_attn.weight", {C, 3 * C});
  const auto bias = theirs("transformer.h.0.attn.c_attn.bias", {3 * C});
  const float* w = ours("transformer.h.0.attn.c_attn.weight").data<float>();
  const float* b = ours("transformer.h.0.attn.c_attn.bias").data<float>();
  int64_t column = 0;
  for (int64_t part = 0; part < 3; ++part)
    for (int64_t head = 0; head < NH; ++head)
      for (int64_t d = 0; d < HS; ++d, ++column) {
        const int64_t row = head * 3 * HS + part * HS + d;
        ASSERT_EQ(bias[column], b[row]);
        for (int64_t k = 0; k < C; ++k) ASSERT_EQ(weight[k * 3 * C + column], w[row * C + k]);
      }
}

TEST_F(Weights, EmbeddingsAndHeadLieAsOursWithoutPadding) {
  const SafetensorsReader file(path_);
  for (const char* name : {"transformer.wte.weight", "lm_head.weight"}) {
    const auto bytes = bytes_of(file, file.expect(name, Dtype::F32, {5, C}));
    EXPECT_EQ(std::memcmp(bytes.data(), ours(name).ptr, bytes.size()), 0) << name;
  }
  file.expect("transformer.wpe.weight", Dtype::F32, {4, C});
}

TEST_F(Weights, NamesMayLackThePrefixAndMasksAreSkipped) {
  const auto rename = [](const std::string& name) {
    return name.starts_with("transformer.") ? name.substr(12) : name;
  };
  rewrite(rename, Dtype::F32,
          {{"h.0.attn.bias", Dtype::F32, {1, 1, 4, 4}}, {"h.0.attn.masked_bias", Dtype::U8, {1}}});
  expect_loads(path_);
}

TEST_F(Weights, WithoutAHeadTheEmbeddingIsTheHead) {
  rewrite(without("lm_head.weight"));
  const std::string wte = SmallModel::bytes_of(ours("transformer.wte.weight"));
  for (const size_t prefix : {0, 12}) {
    rewrite([&](const std::string& name) { return name.substr(prefix); });
    SmallModel other;
    EXPECT_EQ(load(path_, other), "");
    EXPECT_EQ(SmallModel::bytes_of(other.tensor("transformer.wte.weight")), wte);
    EXPECT_EQ(SmallModel::bytes_of(other.tensor("lm_head.weight")), wte);
  }
}

TEST_F(Weights, RefusesAnotherModel) {
  GptConfig wide = small_config();
  wide.channels = 16;
  SmallModel other{.config = wide};
  EXPECT_NE(load(path_, other).find("[5,8], not [5,16]"), std::string::npos);
  EXPECT_EQ(other.bytes(), SmallModel{.config = wide}.bytes());
  rewrite(without(""), Dtype::F32, {{"transformer.h.2.ln_1.bias", Dtype::F32, {C}}});
  expect_refused("holds transformer.h.2.ln_1.bias, which this model has not");
  const TempDir empty;
  expect_refused(empty.path(), "neither");
  expect_refused(empty / "missing", "no such file");
}

/// A model of each family.
class AnyFamily : public HfModel, public testing::WithParamInterface<GptConfig> {
 protected:
  AnyFamily() : HfModel(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Hf, AnyFamily,
                         testing::Values(small_config(), small_of("llama-nano", 16),
                                         small_of("moe-nano", 16)),
                         [](const auto& test) {
                           return std::string(hf_config(test.param).at("model_type"));
                         });

// A key of config.json has the value of this model, or changes nothing that is computed.
TEST_P(AnyFamily, EveryKeyOfTheConfigMustAgree) {
  std::set<std::string> free = {"architectures",
                                "attention_dropout",
                                "attn_pdrop",
                                "bos_token_id",
                                "embd_pdrop",
                                "eos_token_id",
                                "resid_pdrop",
                                "max_position_embeddings",
                                "torch_dtype",
                                "tie_word_embeddings",
                                "reorder_and_upcast_attn"};
  if (GetParam().has_experts()) free.insert({"attention_bias", "mlp_bias"});  // Mixtral has none
  for (const auto& [key, value] : config_.items()) {
    nlohmann::json other = "other";
    if (value.is_boolean()) other = !value.get<bool>();
    if (value.is_number()) other = value.get<double>() + 1;
    if (value.is_number_integer()) other = value.get<int64_t>() + 1;
    const std::string says = refusal(key, other);
    EXPECT_EQ(says.empty(), free.contains(key)) << key << ": " << says;
    EXPECT_TRUE(says.empty() || says.find(key + " is " + other.dump()) != says.npos) << says;
  }
}

TEST_P(AnyFamily, RoundTripAndPaddingIsZero) {
  expect_loads(path_);
  expect_loads(dir_.path());
  write_config();
  expect_loads(dir_.path());
}

// A mixture of the parts of several families: Ladder's checkpoints hold it, and nobody else's.
TEST(HfMixture, IsNoModelOfTheirs) {
  const auto mixture = [](const char* name, auto change) {
    GptConfig config = small_of(name, 16);
    change(config);
    return config;
  };
  using Config = GptConfig;
  const TempDir dir;
  for (const Config& config :
       {mixture("llama-nano", [](Config& c) { c.norm = Norm::Layer; }),
        mixture("moe-nano", [](Config& c) { c.experts.shared = 1; }),
        mixture("moe-nano", [](Config& c) { c.experts.router = Router::Sigmoid; }),
        mixture("moe-nano", [](Config& c) { c.experts.renormalize = false; })}) {
    EXPECT_EQ(hf_config(config).at("model_type"), "ladder");
    SmallModel model{.config = config}, other{.config = config};
    EXPECT_USER_ERROR(model.load(dir / "theirs"), "a mixture of the parts");
    model.fill(2);
    model.save(dir / "run", 3);
    EXPECT_EQ(other.load(dir / "run"), 3);
    EXPECT_EQ(other.bytes(), model.bytes());
    SmallModel plain{.config = small_of(config.has_experts() ? "moe-nano" : "llama-nano", 16)};
    EXPECT_USER_ERROR(plain.load(dir / "run"), "a checkpoint of another model");
    std::filesystem::remove_all(dir / "run");
  }
}

}  // namespace
}  // namespace ladder
