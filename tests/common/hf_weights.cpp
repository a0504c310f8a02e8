// Weights in the layout of Hugging Face's GPT-2, held against its own definition.

#include <cmath>
#include <set>

#include "tests/common/hf_model.h"

namespace ladder {
namespace {

constexpr int64_t C = 8, NH = 2, HS = 4;

class Weights : public HfModel {
 protected:
  Weights() : HfModel(small_config()) {}

  /// Writes the tensors of path_ again under other names; no name: left out.
  template <class Rename>
  std::string renamed(Rename rename, std::vector<SafetensorsPlan::Entry> more = {}) {
    const SafetensorsReader reader(path_);
    std::vector<SafetensorsPlan::Entry> entries;
    std::vector<std::vector<std::byte>> bytes;
    std::vector<Tensor> tensors;
    for (const ParamSpec& s : model_.layout.specs()) {
      const std::string name = rename(s.name);
      if (name.empty()) continue;
      const auto& entry = reader.entries().at(s.name);
      Shape shape;
      for (int64_t extent : entry.shape) shape.dims[shape.rank++] = extent;
      entries.push_back({name, Dtype::F32, shape});
      bytes.push_back(reader.bytes(entry));
      tensors.push_back({.ptr = bytes.back().data(), .shape = shape});
    }
    for (const auto& extra : more) {
      entries.push_back(extra);
      tensors.push_back(model_.arena.zeros(Mem::Param, extra.name, extra.dtype, extra.shape));
    }
    write_safetensors(dir_ / "renamed", entries, tensors);
    return dir_ / "renamed";
  }
};

const auto kSame = [](const std::string& name) { return name; };

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
    const auto bytes = file.bytes(file.expect(name, Dtype::F32, {5, C}));
    EXPECT_EQ(std::memcmp(bytes.data(), ours(name).ptr, bytes.size()), 0) << name;
  }
  file.expect("transformer.wpe.weight", Dtype::F32, {4, C});
}

TEST_F(Weights, RoundTripAndPaddingIsZero) {
  SmallModel other;
  std::fill_n(other.params.data<float>(), other.params.size(), std::nanf(""));
  EXPECT_EQ(load(path_, other), "");
  expect_same(other);
  SmallModel from_directory;
  EXPECT_EQ(load(dir_.path(), from_directory), "");
  expect_same(from_directory);
}

TEST_F(Weights, NamesMayLackThePrefixAndMasksAreSkipped) {
  const auto rename = [](const std::string& name) {
    return name.starts_with("transformer.") ? name.substr(12) : name;
  };
  const std::string path = renamed(rename, {{"h.0.attn.bias", Dtype::F32, {1, 1, 4, 4}},
                                            {"h.0.attn.masked_bias", Dtype::U8, {1}}});
  SmallModel other;
  EXPECT_EQ(load(path, other), "");
  expect_same(other);
}

TEST_F(Weights, WithoutAHeadTheEmbeddingIsTheHead) {
  for (const size_t prefix : {0, 12}) {
    const std::string path = renamed([&](const std::string& name) {
      return name == "lm_head.weight" ? "" : name.substr(prefix);
    });
    SmallModel other;
    EXPECT_EQ(load(path, other), "");
    const auto& specs = other.layout.specs();
    const Tensor wte = other.layout.tensor(other.params, specs.front());
    const Tensor head = other.layout.tensor(other.params, specs.back());
    EXPECT_EQ(SmallModel::bytes_of(wte), SmallModel::bytes_of(ours("transformer.wte.weight")));
    EXPECT_EQ(SmallModel::bytes_of(head), SmallModel::bytes_of(wte));
  }
}

TEST_F(Weights, RefusesAnotherModelAndLeavesTheTensors) {
  SmallModel other;
  other.fill(7);
  const std::string before = other.bytes();
  const auto without = [](const std::string& gone) {
    return [=](const std::string& name) { return name == gone ? "" : name; };
  };
  EXPECT_NE(load(renamed(without("transformer.ln_f.bias")), other), "");
  EXPECT_NE(load(renamed(kSame, {{"transformer.h.2.ln_1.bias", Dtype::F32, {C}}}), other), "");
  EXPECT_EQ(other.bytes(), before);

  GptConfig wide = small_config();
  wide.channels = 16;
  const ParamLayout layout(wide);
  const Tensor params = other.arena.zeros(Mem::Param, "wide", Dtype::F32, {layout.size()});
  EXPECT_USER_ERROR(load_weights(Ctx{}, path_, wide, layout, params), "[5,8], not [5,16]");
  EXPECT_EQ(SmallModel::bytes_of(params), std::string(static_cast<size_t>(params.bytes()), '\0'));
}

TEST_F(Weights, RefusesADirectoryWithoutWeights) {
  SmallModel other;
  const TempDir empty;
  EXPECT_NE(load(empty.path(), other).find("neither"), std::string::npos);
  EXPECT_NE(load(empty / "missing", other).find("no such file"), std::string::npos);
}

}  // namespace
}  // namespace ladder
