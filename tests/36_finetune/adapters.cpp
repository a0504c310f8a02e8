// Adapters: where their numbers lie, in peft's files and here, and what a merge gives.
#include <cmath>

#include <gtest/gtest.h>

#include "chapters/36_finetune/lora.h"
#include "common/model/init.h"
#include "common/run/backend.h"
#include "common/run/options.h"
#include "common/save/hf_layout.h"
#include "tests/common/refusal.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

constexpr int64_t kR = 3;

class Adapters : public ::testing::TestWithParam<const char*> {
 protected:
  static GptConfig model() {
    GptConfig gpt = preset(GetParam());
    gpt.layers = 2;
    return gpt;
  }
  static GptConfig learned() { return LoraOptions{.rank = kR}.learned(model()); }

  Arena arena_;
  RunOptions run_;
  Ctx ctx_ = make_ctx(run_, arena_, nullptr);
  ParamLayout layout_{learned()};
};
INSTANTIATE_TEST_SUITE_P(Models, Adapters, ::testing::Values("tiny", "llama-tiny"),
                         [](const auto& one) {
                           return std::string(one.param == std::string("tiny") ? "gpt" : "llama");
                         });

TEST_P(Adapters, BeginWithAOfTheirBoundAndBOfZero) {
  const Tensor flat = arena_.zeros(Mem::Param, "adapters", Dtype::F32, {layout_.size()});
  init_params(ctx_, flat, layout_, 1);
  for (const ParamSpec& spec : layout_.specs()) {
    const Tensor tensor = layout_.tensor(flat, spec);
    double most = 0;
    for (int64_t i = 0; i < tensor.size(); ++i)
      most = std::max(most, std::fabs(double{tensor.data<float>()[i]}));
    const double bound = 1 / std::sqrt(static_cast<double>(spec.shape.dims[1]));
    if (is_b(spec)) {
      EXPECT_EQ(most, 0) << spec.name;
    } else {
      EXPECT_LE(most, bound * (1 + 1e-6)) << spec.name;
      EXPECT_GT(most, 0.95 * bound) << spec.name;
    }
  }
}

// There and back, and what belongs to another layer stays zero.
TEST_P(Adapters, GoToPeftsFilesAndComeBack) {
  int64_t others = 0;
  for (const ParamSpec& spec : layout_.specs()) {
    std::vector<float> ours(static_cast<size_t>(spec.shape.size())), back(ours.size(), 7);
    for (size_t i = 0; i < ours.size(); ++i) ours[i] = static_cast<float>(i + 1);
    if (is_b(spec))
      for_others(spec, learned(), [&](int64_t i) {
        ours[static_cast<size_t>(i)] = 0;
        ++others;
      });
    std::vector<std::vector<float>> memory;
    std::vector<Tensor> hf;
    for (const HfTensor& tensor : hf_tensors(spec, learned()))
      memory.emplace_back(static_cast<size_t>(tensor.shape.size()), -1);
    for (size_t i = 0; i < memory.size(); ++i)
      hf.push_back({.ptr = memory[i].data(), .shape = hf_tensors(spec, learned())[i].shape});
    to_hf(hf, {.ptr = ours.data(), .shape = spec.shape}, spec, learned());
    for (const auto& tensor : memory) EXPECT_EQ(std::ranges::count(tensor, -1.0F), 0) << spec.name;
    from_hf({.ptr = back.data(), .shape = spec.shape}, hf, spec, learned());
    EXPECT_EQ(back, ours) << spec.name;
  }
  EXPECT_EQ(others > 0, family(model()) == Family::Llama);
}

TEST(LoraOptions, ScaleAndWhatAnAdapterSays) {
  EXPECT_EQ((LoraOptions{.rank = 8}.scale()), 1);
  EXPECT_EQ((LoraOptions{.rank = 8, .alpha = 16}.scale()), 2);
  EXPECT_EQ((LoraOptions{.rank = 4, .alpha = 16, .rslora = true}.scale()), 8);
  const TempDir home;
  nlohmann::json config = adapter_config({.rank = 4, .alpha = 8}, preset("tiny"), "base");
  const auto check = [&](LoraOptions options) {
    write_file(home / kAdapterConfigFile, config.dump());
    options.check(home / "");
    return options;
  };
  EXPECT_EQ(check({}).rank, 4);
  EXPECT_EQ(check({}).scale(), 2);
  EXPECT_EQ(check({.rank = 4, .alpha = 8}).scale(), 2);
  EXPECT_USER_ERROR(check({.rank = 4}), "r 4, lora_alpha 8");
  EXPECT_USER_ERROR(check({.rank = 2, .alpha = 8}), "r 4, lora_alpha 8");
  config["use_dora"] = true;
  EXPECT_USER_ERROR(check({}), "use_dora is true; legal is none");
  config.erase("use_dora");
  config["bias"] = "all";
  EXPECT_USER_ERROR(check({}), "bias none");
  config.erase("r");
  EXPECT_USER_ERROR(check({}), "lacks r or lora_alpha");
}

}  // namespace
}  // namespace ladder
