// Models as Hugging Face saves them: narrow weights, several files, a config.json beside them.

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/save/hf_weights.h"
#include "kernels/narrow.h"
#include "tests/common/hf_model.h"

namespace ladder {
namespace {

using nlohmann::json;

constexpr int64_t V = 5, C = 8;
const std::string kHead = "lm_head.weight", kIndex = "model.safetensors.index.json";

/// A directory with a small model in FP32 and its config.json, and files made of it.
class HfFilesTest : public HfModel {
 protected:
  HfFilesTest() : HfModel(small_config()) { write_config(); }

  /// The model in two files, "a" with the embeddings and "b", and their index.
  void write_two_files() {
    rewrite(in_a, Dtype::F32, {}, "a");
    rewrite([](const std::string& name) { return in_a(name).empty() ? name : ""; }, Dtype::F32, {},
            "b");
    for (const std::string& name : names())
      index_["weight_map"][name] = in_a(name).empty() ? "b" : "a";
    write_index();
    std::filesystem::rename(path_, dir_ / "whole");
    path_ = dir_ / "whole";
  }
  static std::string in_a(const std::string& name) {
    return name.find(".w") != name.npos ? name : "";
  }
  void write_index() { write_file(dir_ / kIndex, index_.dump()); }

  json index_;
};

TEST_F(HfFilesTest, NarrowWeightsAreWidenedExactly) {
  for (const auto& [dtype, format] : {std::pair{Dtype::F16, kF16}, std::pair{Dtype::BF16, kBf16}}) {
    float* const at = model_.params.data<float>();
    // A subnormal number of F16, a zero below zero, and thirds, which no format holds.
    at[0] = 0x1.8p-20f;
    at[1] = -0.0f;
    for (int64_t i = 2; i < V * C; ++i) at[i] = static_cast<float>(i) / 3;
    write_weights(path_, model_);
    rewrite(without(""), dtype);
    SmallModel other;
    ASSERT_EQ(load(other), "");
    for (const ParamSpec& spec : model_.layout.specs())
      for (int64_t i = spec.offset; i < spec.offset + spec.live(); ++i) {
        const float rounded = widen(format, narrow(format, at[i], Overflow::ToInfinity));
        ASSERT_EQ(std::bit_cast<uint32_t>(other.params.data<float>()[i]),
                  std::bit_cast<uint32_t>(rounded))
            << spec.name << " " << i;
      }
  }
}

TEST_F(HfFilesTest, OtherTypesAreNamedWithTheLegalOnes) {
  std::string bytes = read_file(path_);
  for (size_t at = 0; (at = bytes.find(R"("F32")", at)) != std::string::npos;)
    bytes.replace(at, 5, R"("I32")");
  write_file(path_, bytes);
  expect_refused("transformer.wte.weight is I32; legal are F32, F16, BF16");
}

TEST_F(HfFilesTest, ConfigIsReadAndMustAgree) {
  expect_loads(dir_.path());
  const std::string path = dir_ / "config.json";
  config_["n_head"] = 4;
  write_config();
  expect_refused(path + ": n_head is 4, but this model has 2");
  expect_refused(path_, path);  // beside the file that is named, too
  config_["n_head"] = 2;
  config_["activation_function"] = "relu";
  write_config();
  expect_refused(path + ": activation_function is \"relu\"");
  write_file(path, "{");
  expect_refused(path + ": malformed JSON");
  write_file(path, std::string(100'000, '['));
  expect_refused(path + ": JSON nested deeper than 64 levels");
  std::filesystem::remove(path);
  testing::internal::CaptureStderr();
  expect_loads(dir_.path());  // there is none: nothing to compare
  EXPECT_NE(testing::internal::GetCapturedStderr().find("are taken on trust"), std::string::npos);
}

TEST_F(HfFilesTest, ATiedHeadIsTheEmbedding) {
  config_["tie_word_embeddings"] = true;
  write_config();
  expect_refused("lm_head.weight is not the embedding");  // versions of transformers disagree

  rewrite(without(kHead));
  SmallModel other;
  EXPECT_EQ(load(other), "");
  EXPECT_EQ(SmallModel::bytes_of(other.tensor(kHead)),
            SmallModel::bytes_of(other.tensor("transformer.wte.weight")));

  // An equal head beside it is no contradiction.
  write_weights(path_, other);
  SmallModel again;
  EXPECT_EQ(load(again), "");
  EXPECT_EQ(again.bytes(), other.bytes());
}

TEST_F(HfFilesTest, MissingTensorsAreNamedAsTheFileNamesThem) {
  const std::string whole = read_file(path_);
  rewrite(without(kHead));  // config.json says that the head has weights of its own
  expect_refused("holds no tensor lm_head.weight");
  write_file(path_, whole);
  rewrite(without("transformer.h.1.ln_2.bias"));
  expect_refused("holds no tensor transformer.h.1.ln_2.bias");
  std::string bytes = read_file(path_);
  for (size_t at = 0; (at = bytes.find("\"transformer.", at)) != std::string::npos;) {
    bytes.erase(at + 1, 12);  // and as many spaces at the header's end
    bytes.insert(8 + static_cast<unsigned char>(bytes[0]) +
                     256 * static_cast<size_t>(static_cast<unsigned char>(bytes[1])) - 12,
                 12, ' ');
  }
  write_file(path_, bytes);
  expect_refused("holds no tensor h.1.ln_2.bias");
}

TEST_F(HfFilesTest, FilesAreJoinedByTheirIndex) {
  write_two_files();
  for (const std::string& path : {dir_.path(), dir_ / kIndex}) expect_loads(path);
  config_["n_layer"] = 3;
  write_config();
  expect_refused("n_layer is 3");
}

TEST_F(HfFilesTest, FilesThatAreNotAsTheIndexSaysAreRefused) {
  write_two_files();
  std::filesystem::rename(dir_ / "b", dir_ / "c");
  expect_refused("b: no such file");
  std::filesystem::rename(dir_ / "c", dir_ / "b");
  rewrite([](const std::string& name) { return name == "transformer.ln_f.bias" ? name : ""; },
          Dtype::F32, {}, "b");
  expect_refused("holds no tensor ");
  rewrite(without(""), Dtype::F32, {}, "b");  // now the tensors of a are in two files
  expect_refused("b: holds lm_head.weight, as does another file of " + dir_ / kIndex);
}

TEST_F(HfFilesTest, AnIndexNamesFilesBesideItAlone) {
  write_two_files();
  const json good = index_;
  for (const json& file : {json("../a"), json("/etc/passwd"), json(""),
                           json(std::string("a\0b", 3)), json(1), json(nullptr)}) {
    index_ = good;
    index_["weight_map"][kHead] = file;
    write_index();
    expect_refused("places lm_head.weight in " + file.dump() + "; legal are files beside it");
  }
  index_ = good;
  for (const char* file : {".", ".."}) {
    index_["weight_map"][kHead] = file;
    write_index();
    expect_refused("cannot be read: not a regular file");
  }
  for (const char* text : {"{}", "[]", R"({"weight_map":{}})", R"({"weight_map":["a"]})"}) {
    write_file(dir_ / kIndex, text);
    expect_refused(kIndex + ": not the index of a model");
  }
  write_file(dir_ / kIndex, R"({"weight_map":{"x":"a","x":"b"}})");
  expect_refused("stands there twice");
}

}  // namespace
}  // namespace ladder
