// The loss scale over steps whose norms are given. Then small models that learn in each precision;
// the scale decides which of their FP16 gradients overflow or become zero.
#include "labs/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chapters/05_mixed_precision/loss_scaler.h"
#include "chapters/05_mixed_precision/precision.h"
#include "labs/kernel_counts.h"

namespace ladder::lab {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Ends one step: 'g' is good, 'i' has an infinite norm, 'n' a norm that is NaN, 'l' an infinite
/// loss, 'm' a loss that is NaN, 'b' both NaN.
std::string end_step(LossScaler& scaler, char what) {
  const bool both = what == 'b';
  const double loss = what == 'l' ? kInf : both || what == 'm' ? kNaN : 2.5;
  const double norm = what == 'i' ? kInf : both || what == 'n' ? kNaN : 1.5;
  return scaler.end_step(loss, norm);
}

/// A letter for each step: long and short rows of good steps, and overflows one after another.
std::string drawn_steps(const Sheet& sheet, int64_t window) {
  const Random random(sheet.seed(), "steps");
  std::string steps;
  for (uint64_t i = 0; steps.size() < 120; ++i) {
    const auto row = static_cast<size_t>(random.below(static_cast<uint64_t>(3 * window), i));
    steps += std::string(row, 'g') + "inlbm"[i % 5];
  }
  return steps;
}

struct Script {
  std::string name, steps;
  LossScaleOptions options;
  std::string precision = "fp16";
};

void report(Sheet& sheet, std::string_view row, const LossScaler& scaler) {
  nlohmann::json extra = nlohmann::json::object();
  scaler.report(extra);
  sheet.text(row, extra.dump());
}

void play(Sheet& sheet, const Script& script) {
  LossScaler scaler(script.options, {.name = script.precision});
  std::vector<float> scales;
  std::string updates;
  for (const char step : script.steps) {
    updates += end_step(scaler, step).empty() ? 'u' : '-';
    scales.push_back(scaler.scale());
  }
  sheet.bits("scale/after each step", scales);
  sheet.text("scale/updates", updates);
  report(sheet, "scale/reported", scaler);
}

/// A run that ends after `at` steps and goes on from its checkpoint.
void resume(Sheet& sheet, const Script& script, size_t at) {
  const PrecisionOptions precision{.name = script.precision};
  LossScaler first(script.options, precision), second(script.options, precision);
  for (const char step : script.steps.substr(0, at)) end_step(first, step);
  second.set_state(nlohmann::json::parse(first.state().dump()));
  std::vector<float> scales{second.scale()};
  for (const char step : script.steps.substr(at)) {
    end_step(second, step);
    scales.push_back(second.scale());
  }
  const std::string row = fmt::format("resumed/as one run: {}, cut after {}", script.name, at);
  sheet.bits(row + ", scales", scales);
  report(sheet, row + ", reported", second);
}

/// States of other runs, and states that are not legal.
void other_states(Sheet& sheet) {
  const auto scale_after = [](const char* precision, const nlohmann::json& state) {
    LossScaler scaler({.initial = 64}, {.name = precision});
    try {
      scaler.set_state(state);
    } catch (const UserError&) {
      return std::string("UserError");
    }
    return fmt::format("scale {}", scaler.scale());
  };
  const auto of = [](double scale) {
    return nlohmann::json{{"scale", scale}, {"good", 0}, {"skipped", 0}};
  };
  const char* other = "resumed/a state of another precision: ";
  sheet.text(fmt::format("{}null", other), scale_after("fp16", nullptr));
  sheet.text(fmt::format("{}of fp16", other), scale_after("bf16", of(8)));
  sheet.text(fmt::format("{}what bf16 saves", other),
             LossScaler({}, {.name = "bf16"}).state().dump());
  for (const double scale : {3.0, 0.0, -2.0, 0x1p30})
    sheet.text(fmt::format("resumed/a scale that is not legal: {}", scale),
               scale_after("fp16", of(scale)));
}

constexpr int64_t kN = 96;       ///< weights of a model
constexpr uint64_t kSteps = 60;  ///< that it trains

/// Gradients of a step, of sizes from 2^-41 to 2^6: more than FP16 has.
std::vector<float> drawn_gradients(const Sheet& sheet, uint64_t step) {
  std::vector<float> drawn = sheet.normals("gradients", kN, step);
  for (size_t i = 0; i < drawn.size(); ++i)
    drawn[i] = std::ldexp(drawn[i], 6 - static_cast<int>(i % 48));
  return drawn;
}

/// What is lost in FP16: gradients that became zero in steps with an update, and updates.
struct Lost {
  int64_t zeros = 0, skipped = 0;
};

/// Steps of a model whose gradients are drawn. They are stored as the precision has it, times the
/// scale. `each` is called with the weights, after some steps.
template <class Each>
Lost train(const Sheet& sheet, const PrecisionOptions& precision, const LossScaleOptions& options,
           Each&& each) {
  CountedKernels kernels;
  const Ctx& ctx = kernels.ctx();
  Arena arena;
  const Weights weights(arena, kN, precision);
  LossScaler scaler(options, precision);
  const Tensor grads = arena.zeros(Mem::Grad, "grads", Dtype::F32, {kN});
  const Tensor narrow = arena.zeros(Mem::Workspace, "narrow", precision.dtype(), {kN});
  const std::span<float> g(grads.data<float>(), kN), w(weights.master.data<float>(), kN);
  std::ranges::copy(sheet.normals("weights", kN), w.begin());
  weights.refresh(ctx);
  Lost lost;
  for (uint64_t step = 0; step < kSteps; ++step) {
    std::ranges::transform(drawn_gradients(sheet, step), g.begin(),
                           [&](float x) { return scaler.scale() * x; });
    ctx.kernels->cast(ctx, narrow, grads);
    ctx.kernels->cast(ctx, grads, narrow);
    scaler.unscale(ctx, grads);
    double squares = 0;
    for (const float x : g) squares += double{x} * double{x};
    if (scaler.end_step(2.5, std::sqrt(squares)).empty()) {
      lost.zeros += std::ranges::count(g, 0.0f);
      for (size_t i = 0; i < kN; ++i) w[i] -= 1e-3f * g[i];
      weights.refresh(ctx);
    } else {
      ++lost.skipped;
    }
    if (step % 20 == 19) each(step, weights);
  }
  return lost;
}

void train_bits(Sheet& sheet, const PrecisionOptions& precision, const LossScaleOptions& options) {
  train(sheet, precision, options, [&](uint64_t step, const Weights& weights) {
    sheet.bits(fmt::format("weights/master, step {}", step), weights.master);
    sheet.bits(fmt::format("weights/compute, step {}", step), weights.compute);
  });
}

/// Without the idea a run loses the gradients that are zero at a scale of 1, or all steps if its
/// scale stays too large.
void train_counts(Sheet& sheet, const LossScaleOptions& options) {
  int64_t zeros = 0;
  for (uint64_t step = 0; step < kSteps; ++step)
    for (const float x : drawn_gradients(sheet, step)) zeros += std::abs(x) <= 0x1p-25f;
  const Lost lost = train(sheet, {.name = "fp16"}, options, [](uint64_t, const Weights&) {});
  sheet.without_idea("zeros", zeros);
  sheet.count("zeros", lost.zeros);
  sheet.without_idea("skipped", kSteps);
  sheet.count("skipped", lost.skipped);
}

void formulas(Sheet& sheet) {
  for (const auto& [name, bits] :
       {std::pair{"fp32", 32}, {"bf16", 32}, {"fp16", 32}, {"bf16", 16}}) {
    const PrecisionOptions precision{.name = name, .master_bits = bits};
    sheet.text(fmt::format("formula/weights and master: {}, {} bits", name, bits),
               fmt::format("{} and {}", Weights::param_bytes(kN, precision),
                           Weights::master_bytes(kN, precision)));
  }
}

}  // namespace

void cases(Sheet& sheet) {
  const int64_t window = sheet.pick<int64_t>("window", {3, 4, 5});
  const LossScaleOptions options{.initial = 1024, .window = window};
  const std::string drawn = drawn_steps(sheet, window);
  const std::vector<Script> scripts{
      {"drawn steps", drawn, options},
      {"good steps", std::string(90, 'g'), options},
      {"losses that are infinite", "gglgglgglgglgglgglgglggl", options},
      {"overflows", std::string(14, 'i') + std::string(30, 'g'), options},
      {"a scale that began below 1",
       "iigggggggggggggggiigg",
       {.initial = 0x1p-3f, .window = window}},
      {"a fixed scale", drawn, {.initial = 64, .fixed = true, .window = window}},
      {"bf16", drawn, options, "bf16"}};
  for (const Script& script : scripts) sheet.run(script.name, [&] { play(sheet, script); });
  sheet.run("resumed", [&] {
    for (const Script& script : scripts)
      for (const size_t at : {size_t{4}, sheet.pick<size_t>("resumed", {11, 13, 17})})
        if (script.precision == "fp16") resume(sheet, script, at);
    other_states(sheet);
  });
  const LossScaleOptions too_large{.initial = 0x1p20f, .window = window};
  for (const char* precision : {"fp32", "bf16", "fp16"})
    sheet.run(fmt::format("training in {}", precision),
              [&] { train_bits(sheet, {.name = precision}, too_large); });
  for (const float scale : {1024.0f, 0x1p-3f})
    sheet.run(fmt::format("training in fp16 from a scale of {}", scale),
              [&] { train_bits(sheet, {.name = "fp16"}, {.initial = scale, .window = window}); });
  sheet.run("bytes", [&] { formulas(sheet); });
  sheet.run("training in bf16 without a master",
            [&] { train_bits(sheet, {.name = "bf16", .master_bits = 16}, options); });
  sheet.run("what fp16 loses", [&] { train_counts(sheet, too_large); });
}

}  // namespace ladder::lab
