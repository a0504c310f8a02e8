// The gradient of a block's experts, in double with `ref`, against central differences: through the
// experts, through the weights of the router and through its losses.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "chapters/21_moe/moe.h"
#include "common/random.h"

namespace ladder {
namespace {

constexpr int64_t kB = 2, kT = 5, kC = 16, kF = 4, kE = 6;

struct Case {
  std::string name;
  bool sigmoid, renormalize;
  int64_t k, capacity;
  float balance, z;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class Layer {
 public:
  explicit Layer(const Case& one) : case_(one) {
    const Random random(7, "experts");
    uint64_t at = 0;
    for (const Tensor& x : inputs())
      for (int64_t i = 0; i < x.size(); ++i) x.data<double>()[i] = random.normal_pair(at++)[0];
    for (int64_t i = 0; i < dout_.size(); ++i)
      dout_.data<double>()[i] = random.normal_pair(at++)[0];
  }
  /// What the loss is a function of.
  std::vector<Tensor> inputs() const { return {inp_, w_.router, w_.fc, w_.proj_w}; }
  std::vector<Tensor> gradients() const { return {dinp_, dw_.router, dw_.fc, dw_.proj_w}; }
  std::vector<int32_t> chosen() const {
    const Tensor e = routers_.acts(0).chosen.expert;
    return {e.data<int32_t>(), e.data<int32_t>() + e.size()};
  }

  /// dout . out + the losses of the router.
  double loss() {
    const RouterActs r = routers_.acts(0);
    const ExpertActs s = layers_.acts(0, r.chosen);
    router_forward(ctx_, r, inp_, w_.router, {}, rule());
    permute_forward(ctx_, s, inp_, routers_.capacity());
    experts_forward(ctx_, s, w_);
    unpermute_forward(ctx_, out_, s);
    double sum = 0;
    for (int64_t i = 0; i < out_.size(); ++i)
      sum += dout_.data<double>()[i] * out_.data<double>()[i];
    for (int64_t b = 0; b < kB; ++b) {
      const double* losses = r.losses.data<double>();
      sum += double{case_.balance} * losses[b] + double{case_.z} * losses[kB + b];
    }
    return sum;
  }
  void gradient() {
    loss();
    const RouterActs r = routers_.acts(0);
    const ExpertActs s = layers_.acts(0, r.chosen);
    unpermute_backward(ctx_, s, dout_);
    experts_backward(ctx_, dw_, s, inp_, w_, Into::Write);
    permute_backward(ctx_, dinp_, s);
    router_backward(ctx_, of_router_, dw_.router, r, inp_, w_.router, rule(),
                    {.balance = case_.balance, .z = case_.z}, Into::Write);
    for (int64_t i = 0; i < dinp_.size(); ++i)
      dinp_.data<double>()[i] += of_router_.data<double>()[i];
  }

 private:
  static GptConfig config(const Case& one) {
    GptConfig config = preset("moe-nano");
    config.layers = 1;
    config.channels = kC;
    config.hidden = kF;
    config.seq_len = kT;
    config.experts.count = kE;
    config.experts.chosen = one.k;
    return config;
  }
  RouteRule rule() const { return {.sigmoid = case_.sigmoid, .renormalize = case_.renormalize}; }
  Tensor alloc(const char* name, Shape shape) {
    return arena_.alloc(Mem::Workspace, name, Dtype::F64, shape);
  }
  ExpertTensors alloc_experts() {
    return {.router = alloc("router", {kE, kC}),
            .fc = alloc("fc", {kE, 2 * kF, kC}),
            .proj_w = alloc("proj", {kE, kC, kF})};
  }

  Case case_;
  Arena arena_;
  Ctx ctx_{.kernels = &ref_kernels(), .scratch{}, .documents{}};
  const ActivationPlan plan_{.dtype = Dtype::F64};
  Routers routers_{arena_, config(case_), kB, kB, plan_, case_.capacity};
  ExpertLayers layers_{arena_, ExpertSizes(config(case_), kB), plan_};
  ExpertTensors w_ = alloc_experts(), dw_ = alloc_experts();
  Tensor inp_ = alloc("inp", {kB, kT, kC}), dinp_ = alloc("dinp", {kB, kT, kC});
  Tensor of_router_ = alloc("of_router", {kB, kT, kC});
  Tensor out_ = alloc("out", {kB, kT, kC}), dout_ = alloc("dout", {kB, kT, kC});
};

class ExpertGradient : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Of, ExpertGradient,
                         testing::Values(Case{"Softmax", false, true, 2, 0, 0, 0},
                                         Case{"Plain", false, false, 3, 0, 0, 0},
                                         Case{"Sigmoid", true, true, 3, 0, 0, 0},
                                         Case{"SigmoidPlain", true, false, 1, 0, 0, 0},
                                         Case{"Losses", false, true, 3, 0, 0.7f, 0.3f},
                                         Case{"SigmoidLosses", true, true, 4, 0, 0.7f, 0.3f},
                                         Case{"Dropping", false, true, 3, 2, 0.7f, 0}),
                         [](const auto& one) { return one.param.name; });

TEST_P(ExpertGradient, AgainstCentralDifferences) {
  Layer layer(GetParam());
  layer.gradient();
  const std::vector<int32_t> chosen = layer.chosen();
  constexpr double kStep = 1e-6;
  for (size_t which = 0; which < layer.inputs().size(); ++which) {
    const Tensor x = layer.inputs()[which], dx = layer.gradients()[which];
    for (int64_t i = 0; i < x.size(); ++i) {
      double& value = x.data<double>()[i];
      const double start = value;
      value = start + kStep;
      const double above = layer.loss();
      const bool same = layer.chosen() == chosen;
      value = start - kStep;
      const double below = layer.loss();
      value = start;
      // A gradient is that of fixed choices: no step may change one.
      ASSERT_TRUE(same && layer.chosen() == chosen) << which << " " << i;
      const double slope = (above - below) / (2 * kStep);
      // NaN fails: the comparison is false.
      ASSERT_TRUE(std::abs(dx.data<double>()[i] - slope) <= 1e-6 * (1 + std::abs(slope)))
          << which << "[" << i << "]: " << dx.data<double>()[i] << " against " << slope;
    }
  }
}

}  // namespace
}  // namespace ladder
