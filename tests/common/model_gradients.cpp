// The whole model's gradient, in double with `ref`, against central differences: every parameter
// of a small model of odd sizes, with padded vocabulary and ignored targets.
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/model/activations.h"
#include "common/random.h"
#include "kernels/tree.h"
#include "tests/common/blocks.h"

namespace ladder {
namespace {

constexpr int64_t kB = 3;

GptConfig odd() {
  return {.name = "odd",
          .layers = 2,
          .heads = 3,
          .channels = 6,
          .seq_len = 5,
          .positions = 8,
          .vocab = 7,
          .padded_vocab = 9};
}
/// Three heads in one group.
GptConfig odd_llama() {
  GptConfig config = odd();
  config.channels = 12;
  config.kv_heads = 1;
  config.hidden = 5;
  config.norm = Norm::Rms;
  config.mlp = Mlp::SwiGlu;
  config.position = Position::Rope;
  config.bias = false;
  return config;
}
/// A part of LLaMA in GPT-2, or of GPT-2 in LLaMA.
template <class Change>
GptConfig changed(GptConfig config, Change change) {
  change(config);
  return config;
}

struct Case {
  std::string name;
  GptConfig config;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }
std::vector<Case> cases() {
  return {{"Gpt2", odd()},
          {"Gpt2Tied", changed(odd(), [](GptConfig& c) { c.tied_head = true; })},
          {"Llama", odd_llama()},
          {"LlamaTied", changed(odd_llama(), [](GptConfig& c) { c.tied_head = true; })},
          {"Gpt2WithRms", changed(odd(), [](GptConfig& c) { c.norm = Norm::Rms; })},
          {"Gpt2WithSwiGlu", changed(odd(), [](GptConfig& c) { c.mlp = Mlp::SwiGlu; })},
          {"Gpt2WithRope", changed(odd(), [](GptConfig& c) { c.position = Position::Rope; })},
          {"LlamaWithBias", changed(odd_llama(), [](GptConfig& c) { c.bias = true; })}};
}

class Model {
 public:
  explicit Model(const GptConfig& config) : config_(config) {
    layout_ = ParamLayout(config_);
    flat_ = arena_.zeros(Mem::Param, "params", Dtype::F64, {layout_.size()});
    grads_ = arena_.zeros(Mem::Grad, "grads", Dtype::F64, {layout_.size()});
    const Random random(7, "model");
    for (const ParamSpec& spec : layout_.specs())
      for (int64_t i = 0; i < spec.live(); ++i) {
        const int64_t at = spec.offset + i;
        const double gain = spec.role == Role::Gain ? 1 : 0;
        params()[at] = gain + 0.3 * random.normal_pair(static_cast<uint64_t>(at))[0];
      }
    for (int64_t i = 0; i < kB * config_.seq_len; ++i) {
      const auto [token, target] = random.bits(static_cast<uint64_t>(i), 1);
      tokens_.data<int32_t>()[i] = static_cast<int32_t>(token % 7);
      targets_.data<int32_t>()[i] = i % 4 == 2 ? kIgnore : static_cast<int32_t>(target % 7);
    }
  }

  const ParamLayout& layout() const { return layout_; }
  double* params() const { return flat_.data<double>(); }
  const double* grads() const { return grads_.data<double>(); }

  double loss() {
    forward();
    head_loss(ctx_, losses_, a_.logits, targets_, config_.vocab);
    return sum_of_losses();
  }

  void gradient() {
    forward();
    head_loss_and_gradient(ctx_, losses_, a_.logits, targets_, config_.vocab, 1.0f);
    backward();
  }

 private:
  double sum_of_losses() const {
    const double* loss = losses_.data<double>();
    return tree_sum<double>(kB, [&](int64_t b) { return loss[b]; });
  }

  void forward() {
    const GptTensors w = layout_.view(flat_);
    embed_forward(ctx_, a_.embed, tokens_, w.embed);
    for (int64_t l = 0; l < config_.layers; ++l) test::forward_block(ctx_, w, a_, l);
    norm_forward(ctx_, a_.norm, a_.stat, a_.stream(config_.layers), w.norm);
    head_forward(ctx_, a_.logits, a_.norm, w.head_w);
  }

  void backward() {
    const GptTensors w = layout_.view(flat_), dw = layout_.view(grads_);
    const Tensor last = a_.stream(config_.layers);
    head_backward_input(ctx_, d_.branch, a_.logits, w.head_w);
    head_backward_weight(ctx_, dw.head_w, a_.logits, a_.norm, Into::Write);
    norm_backward_input(ctx_, d_.stream, d_.branch, last, a_.stat, w.norm);
    norm_backward_weight(ctx_, dw.norm, d_.branch, last, a_.stat, Into::Write);
    for (int64_t l = config_.layers; l-- > 0;) test::backward_block(ctx_, dw, w, a_, d_, l);
    embed_backward_weight(ctx_, dw.embed, d_.stream, tokens_, Into::Write);
  }

  GptConfig config_;
  ParamLayout layout_{config_};
  Arena arena_;
  Ctx ctx_{.kernels = &ref_kernels(), .scratch{}, .documents{}};
  Tensor flat_, grads_;
  Activations a_ = alloc_activations(arena_, config_, kB, {.dtype = Dtype::F64});
  ActGrads d_ = alloc_act_grads(arena_, config_, kB, {.dtype = Dtype::F64});
  Tensor losses_ = arena_.alloc(Mem::Activation, "losses", Dtype::F64, {kB});
  Tensor tokens_ = arena_.alloc(Mem::Activation, "tokens", Dtype::I32, {kB, config_.seq_len});
  Tensor targets_ = arena_.alloc(Mem::Activation, "targets", Dtype::I32, {kB, config_.seq_len});
};

class ModelGradient : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Model, ModelGradient, testing::ValuesIn(cases()),
                         [](const auto& model) { return model.param.name; });

TEST_P(ModelGradient, EveryParameterAgainstCentralDifferences) {
  Model model(GetParam().config);
  model.gradient();
  constexpr double kStep = 1e-5;
  for (const ParamSpec& spec : model.layout().specs())
    for (int64_t i = 0; i < spec.live(); ++i) {
      double& w = model.params()[spec.offset + i];
      const double start = w;
      w = start + kStep;
      const double above = model.loss();
      w = start - kStep;
      const double below = model.loss();
      w = start;
      const double slope = (above - below) / (2 * kStep);
      // NaN fails: the comparison is false.
      ASSERT_TRUE(std::abs(model.grads()[spec.offset + i] - slope) <= 1e-7 * (1 + std::abs(slope)))
          << spec.name << "[" << i << "]: " << model.grads()[spec.offset + i] << " against "
          << slope;
    }
}

TEST_P(ModelGradient, PaddingHasNone) {
  Model model(GetParam().config);
  model.gradient();
  for (const ParamSpec& spec : model.layout().specs())
    for (int64_t i = spec.live(); i < spec.shape.size(); ++i)
      EXPECT_EQ(model.grads()[spec.offset + i], 0) << spec.name;
}

}  // namespace
}  // namespace ladder
