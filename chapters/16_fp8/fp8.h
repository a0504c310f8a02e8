// FP8 (arXiv 2209.05433): the factors of a block's four linear layers take one byte per number.
//
//   forward    qkv, fc: inp E4M3 x w E4M3        proj: att or act E4M3 x w E4M3
//   backward   dout E5M2 x w E4M3 -> dinp        dout E5M2 x inp E4M3 -> dw
//
// E4M3 has the digits that weights and activations need, E5M2 the range that gradients need. Both
// formats have little of either. So each tensor is first multiplied by its own scale,
//
//   scale = 2^floor(log2(largest number of the format / amax) - kMargin), from 2^-60 to 2^60
//
// where amax is the largest magnitude of the tensor in the last kHistory steps. This is delayed
// scaling, the first recipe of NVIDIA's Transformer Engine: the scale is known before the tensor
// is. A number that is larger than expected saturates. Before the first step, only weights have an
// amax; inputs and gradients begin with a scale of 1. A scale does not change during a step, and
// amax is a maximum over micro-batches. So the step is the same however its batch is cut. Sums are
// FP32. Embedding, head, norms and attention stay BF16.
//
// No kernel for CPUs multiplies FP8 here. The codes are real bytes in memory; a product widens them
// exactly. GPUs of compute capability 8.9 and more multiply them (kernels/cuda/matmul.cu), along
// rows of both factors. So where kernels ask for it, all codes exist twice, the second time
// transposed:
//
//   forward                 inp, w as they are
//   backward of the input   dout as it is, w transposed
//   backward of the weight  dout and inp transposed
//
// Backward reads only the transposed copy of inputs. So all blocks share the other copy.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/05_mixed_precision/precision.h"
#include "chapters/16_fp8/delayed_scale.h"
#include "chapters/16_fp8/fp8_parts.h"
#include "common/error.h"
#include "common/model/activations.h"
#include "common/model/layout.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/narrow.h"

namespace ladder {

/// --precision also takes fp8. Everything except these products is then as in BF16.
struct Fp8Options : PrecisionOptions {
  void add_to(CommandLine& line) {
    PrecisionOptions::add_to(line, "fp32, bf16, fp16 (loss scaled) or fp8 (E4M3 and E5M2)",
                             {"fp32", "bf16", "fp16", "fp8"});
  }

  bool fp8() const { return name == "fp8"; }
  /// The activations of this precision.
  ActivationPlan plan() const {
    ActivationPlan plan = PrecisionOptions::plan();
    // Backward reads the codes, so it does not need the tensors that they were made from.
    plan.own_norm = plan.own_act = !fp8();
    return plan;
  }
};

/// The codes of all blocks, and their scales.
class Fp8 {
 public:
  /// Allocates nothing unless `on`.
  /// @param sets of activations: block l uses set l % sets
  /// @param transposed whether all codes exist transposed, too: Kernels::transposes_fp8
  Fp8(Arena& arena, const GptConfig& config, int64_t batch, int64_t sets, bool on,
      bool transposed = false)
      : rules_(on ? static_cast<size_t>(config.layers) * kEach : 0),
        attn_(static_cast<size_t>(config.layers)),
        mlp_(attn_) {
    if (!on) return;
    const int64_t L = config.layers, T = config.seq_len, C = config.channels;
    const LocalWidths widths(config, /*tp=*/1);
    for (size_t i = 0; i < rules_.size(); ++i)
      rules_[i].dtype = i % kEach >= kGradients ? Dtype::E5M2 : Dtype::E4M3;
    // Kernels read a scale and raise its amax. Between steps the host uses both.
    memory_ = arena.shared(Mem::Param, "fp8_scales", Dtype::F32, {scale_bytes(config) / 4});
    scales_ = {new (memory_.ptr) Fp8Scale[rules_.size()], rules_.size()};
    const auto alloc = [&](Mem mem, const char* name, Dtype dtype, Shape shape) {
      Tensor codes = arena.alloc(mem, name, dtype, shape);
      if (transposed) codes.transposed = arena.alloc(mem, name, dtype, shape).ptr;
      return codes;
    };
    for (int64_t l = 0; l < L; ++l)
      weights_.push_back({alloc(Mem::Param, "qkv8", Dtype::E4M3, {widths.qkv, C}),
                          alloc(Mem::Param, "proj8", Dtype::E4M3, {C, C}),
                          alloc(Mem::Param, "fc8", Dtype::E4M3, {widths.fc, C}),
                          alloc(Mem::Param, "mlp_proj8", Dtype::E4M3, {C, widths.act})});
    const auto input = [&](const char* name, int64_t width) {
      return arena.alloc(Mem::Activation, name, Dtype::E4M3, {batch, T, width});
    };
    const auto four_inputs = [&]() -> Four {
      return {input("norm1_8", C), input("att8", C), input("norm2_8", C),
              input("act8", widths.act)};
    };
    std::vector<Four> inputs;
    const Four shared = transposed ? four_inputs() : Four{};
    for (int64_t set = 0; set < sets; ++set) {
      inputs.push_back(four_inputs());
      for (size_t i = 0; transposed && i < 4; ++i) {
        inputs.back()[i].transposed = inputs.back()[i].ptr;
        inputs.back()[i].ptr = shared[i].ptr;
      }
    }
    const Tensor dproduct = alloc(Mem::Workspace, "dproduct8", Dtype::E5M2, {batch, T, C});
    const Tensor dqkv = alloc(Mem::Workspace, "dqkv8", Dtype::E5M2, {batch, T, widths.qkv});
    const Tensor dfc = alloc(Mem::Workspace, "dfc8", Dtype::E5M2, {batch, T, widths.fc});
    for (size_t l = 0; l < attn_.size(); ++l) {
      const Four& inp = inputs[l % inputs.size()];
      attn_[l] = {.inp = with_scale(inp[0], l, kInputs),
                  .mid = with_scale(inp[1], l, kInputs + 1),
                  .dmid = with_scale(dqkv, l, kGradients),
                  .dproduct = with_scale(dproduct, l, kGradients + 1)};
      mlp_[l] = {.inp = with_scale(inp[2], l, kInputs + 2),
                 .mid = with_scale(inp[3], l, kInputs + 3),
                 .dmid = with_scale(dfc, l, kGradients + 2),
                 .dproduct = with_scale(dproduct, l, kGradients + 3)};
    }
  }
  Fp8(const Fp8&) = delete;  // tensors point at the scales
  Fp8& operator=(const Fp8&) = delete;

  /// Adds what the constructor allocates to a prediction.
  static void add_bytes(MemoryBytes& bytes, const GptConfig& config, int64_t batch, int64_t sets,
                        bool on, bool transposed = false) {
    if (!on) return;
    const int64_t C = config.channels, tokens = batch * config.seq_len, copies = transposed ? 2 : 1;
    const LocalWidths widths(config, /*tp=*/1);
    bytes[Mem::Param] += copies * config.layers * config.block_matrices() + scale_bytes(config);
    bytes[Mem::Activation] += (sets + copies - 1) * tokens * (3 * C + widths.act);
    bytes[Mem::Workspace] += copies * tokens * (C + widths.qkv + widths.fc);
  }

  /// Makes the linear layers of all blocks FP8. Remembers `w`, from which codes are made.
  void attach(GptTensors& w) {
    for (size_t l = 0; l < weights_.size(); ++l) attach_weights(w.blocks[l], l);
  }
  /// The codes that the products of block l read. They are null if FP8 is off.
  const Fp8Codes& attn(size_t l) const { return attn_[l]; }
  const Fp8Codes& mlp(size_t l) const { return mlp_[l]; }

  /// Called before a step. Forgets the amax of what an evaluation has seen.
  void begin_step() {
    for (size_t i = 0; i < scales_.size(); ++i)
      if (i % kEach >= kInputs) scales_[i].amax = 0;
  }

  /// Scale and amax of every tensor, F32 (2 n). Ranks see different sequences, so before judge()
  /// and end_step() they take the maximum over ranks. All ranks have equal scales anyway.
  Tensor scales() const { return memory_; }

  /// Why there must be no update: `bad`, or a reason that neither loss nor gradient shows. An
  /// infinity has the code of the largest number of the format, and only amax tells the two apart.
  std::string judge(const Ctx& ctx, const std::string& bad) const {
    ctx.synchronize();
    const bool finite =
        std::ranges::all_of(scales_, [](const Fp8Scale& one) { return std::isfinite(one.amax); });
    return !bad.empty() || finite ? bad : "a factor of an FP8 product is NaN or infinite";
  }
  /// The same check for an evaluation. If it fails, losses become NaN.
  void judge_losses(const Ctx& ctx, Tensor losses) const {
    if (!judge(ctx, "").empty()) ctx.kernels->scale(ctx, losses, std::nanf(""));
  }

  /// Called after a step's update. Computes new scales, and with them new codes of the weights.
  void end_step(const Ctx& ctx) {
    ctx.synchronize();
    for (size_t i = 0; i < scales_.size(); ++i) scales_[i] = rules_[i].next(scales_[i]);
    quantize_weights(ctx);
  }

  /// Makes codes of weights that did not change by a step: at the start, or from a checkpoint.
  void start(const Ctx& ctx) {
    quantize_weights(ctx);
    ctx.synchronize();
    // Initial weights have no history. It begins with their own amax.
    for (size_t i = 0; i < scales_.size(); ++i)
      if (i % kEach < kInputs && rules_[i].history.empty()) scales_[i] = rules_[i].next(scales_[i]);
    quantize_weights(ctx);
  }

  /// What the next step needs from a checkpoint. The state of another precision changes nothing.
  nlohmann::json state() const {
    nlohmann::json all = nlohmann::json::array();
    for (size_t i = 0; i < scales_.size(); ++i)
      all.push_back({{"scale", scales_[i].scale}, {"history", rules_[i].history}});
    return all;
  }
  void set_state(const nlohmann::json& state) {
    if (state.size() != scales_.size()) return;
    for (size_t i = 0; i < scales_.size(); ++i) {
      const double scale = state.at(i).at("scale");
      rules_[i].history = state.at(i).at("history").get<std::deque<float>>();
      if (!(scale >= 1 / kMaxFp8Scale && scale <= kMaxFp8Scale && is_power_of_two(scale)))
        throw UserError("scale {}", scale);
      for (const float amax : rules_[i].history)
        if (!(amax >= 0 && std::isfinite(amax))) throw UserError("amax {}", amax);
      scales_[i].scale = static_cast<float>(scale);
    }
  }

 private:
  // The scales of a block: four for weights, four for inputs, four for gradients.
  static constexpr size_t kWeights = 0, kInputs = 4, kGradients = 8, kEach = 12;

  static int64_t scale_bytes(const GptConfig& config) {
    return config.layers * static_cast<int64_t>(kEach * sizeof(Fp8Scale));
  }

  using Four = std::array<Tensor, 4>;  // of qkv, attention's proj, fc, MLP's proj

  Tensor with_scale(Tensor codes, size_t l, size_t which) const {
    codes.fp8 = &scales_[l * kEach + which];
    return codes;
  }

  /// Lets block l use codes instead of its weights `p`.
  void attach_weights(BlockTensors& p, size_t l) {
    sources_.push_back({p.attn.qkv.w, p.attn.proj_w, p.mlp.fc.w, p.mlp.proj_w});
    for (size_t i = 0; i < 4; ++i) weights_[l][i] = with_scale(weights_[l][i], l, kWeights + i);
    p.attn.qkv.w = weights_[l][0];
    p.attn.proj_w = weights_[l][1];
    p.mlp.fc.w = weights_[l][2];
    p.mlp.proj_w = weights_[l][3];
  }
  void quantize_weights(const Ctx& ctx) const {
    for (size_t l = 0; l < sources_.size(); ++l)
      for (size_t i = 0; i < 4; ++i) ctx.kernels->cast(ctx, weights_[l][i], sources_[l][i]);
  }

  std::vector<DelayedScale> rules_;
  Tensor memory_;               ///< where scales_ lie
  std::span<Fp8Scale> scales_;  ///< one for each rule
  std::vector<Four> weights_, sources_;
  std::vector<Fp8Codes> attn_, mlp_;  ///< of each block
};

}  // namespace ladder
