// The table of a model that is wider and deeper than its base, and the norm of its gradients.
#include "labs/check.h"

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "chapters/34_scaling/scaling.h"
#include "labs/kernel_counts.h"

namespace ladder::lab {
namespace {

GptConfig model(int64_t channels, int64_t layers) {
  return {.name = "lab",
          .layers = layers,
          .heads = channels / 4,
          .channels = channels,
          .seq_len = 4,
          .positions = 5,
          .vocab = 11,
          .padded_vocab = 16};
}

/// A model and its base: widths and depths in all four combinations of equal and larger.
struct Pair {
  int64_t width, depth, base_width, base_depth;
};

Scaling scaling_of(const Pair& pair) {
  const ScalingOptions options{
      .mup = {fmt::format("{}", pair.base_width), fmt::format("{}", pair.base_depth)}};
  return Scaling(options, model(pair.width, pair.depth));
}

using R = ladder::Role;  // labs have a Role of their own

struct Named {
  std::string_view name;
  R role;
  bool in_block;
};
constexpr std::array kRoles{Named{"embedding", R::Embedding, false},
                            Named{"positions", R::Position, false},
                            Named{"qkv", R::Qkv, true},
                            Named{"bias of qkv", R::QkvBias, true},
                            Named{"first of the MLP", R::Matrix, true},
                            Named{"gate and up", R::GateUp, true},
                            Named{"projection", R::Projection, true},
                            Named{"bias of a projection", R::ProjectionBias, true},
                            Named{"gain in a block", R::Gain, true},
                            Named{"bias in a block", R::Bias, true},
                            Named{"last gain", R::Gain, false},
                            Named{"last bias", R::Bias, false},
                            Named{"head", R::Head, false}};

/// Computed in double and rounded, so that the order of products does not matter.
void run_table(Sheet& sheet, const Pair& pair) {
  const Scaling scaling = scaling_of(pair);
  const auto row = [&](const char* gate, const Named& what, double factor) {
    const char* part = what.in_block ? "blocks" : what.role == R::Head ? "head" : "others";
    const std::array value{static_cast<float>(factor)};
    sheet.bits(fmt::format("{}/{}: {}", gate, part, what.name), value);
  };
  for (const Named& what : kRoles) {
    const Factors factors = scaling.of(what.role, what.in_block);
    const bool drawn = what.role != R::Gain && what.role != R::Bias && what.role != R::QkvBias &&
                       what.role != R::ProjectionBias;
    if (drawn) row("std", what, factors.std);
    row("rate", what, factors.rate);
    row("eps", what, factors.eps);
    row("decay", what, factors.decay);
  }
}

void run_norm(Sheet& sheet, const Pair& pair) {
  CountedKernels kernels;
  const Ctx& ctx = kernels.ctx();
  Arena arena;
  const Scaling scaling = scaling_of(pair);
  const ParamLayout layout(model(pair.width, pair.depth));
  const Tensor grads = arena.zeros(Mem::Grad, "grads", Dtype::F32, {layout.size()});
  const Tensor limbs = arena.shared(Mem::Workspace, "limbs", Dtype::I64, {Scaling::kFolds, kLimbs});
  for (const uint64_t step : {1U, 2U}) {  // the second finds limbs as the first has left them
    const std::vector<float> drawn = sheet.normals("grads", layout.size(), step);
    for (const ParamSpec& spec : layout.specs()) {
      const Tensor part = layout.tensor(grads, spec);
      for (int64_t i = 0; i < part.size(); ++i)
        part.data<float>()[i] = drawn[static_cast<size_t>(spec.offset + i)];
    }
    const std::array norm{static_cast<float>(scaling.grad_norm(ctx, grads, layout, limbs))};
    sheet.bits(fmt::format("norm/step {}", step), norm);
  }
}

}  // namespace

void cases(Sheet& sheet) {
  const auto m = sheet.pick<int64_t>("m", {2, 3, 4}), d = sheet.pick<int64_t>("d", {2, 3, 5});
  for (const Pair& pair : {Pair{8 * m, 2 * d, 8, 2}, {8 * m, 2, 8, 2}, {8, 2 * d, 8, 2}}) {
    const std::string name = fmt::format("{} channels and {} layers, base {} and {}", pair.width,
                                         pair.depth, pair.base_width, pair.base_depth);
    sheet.run(name, [&] { run_table(sheet, pair); });
    sheet.run("norm of " + name, [&] { run_norm(sheet, pair); });
  }
}

}  // namespace ladder::lab
