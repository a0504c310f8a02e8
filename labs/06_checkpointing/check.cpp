// Gradients of a small model whose activations share memory as the policy plans, of one micro-batch
// and of two that are in flight together.
#include "labs/check.h"

#include <string>
#include <vector>

#include "chapters/06_checkpointing/recompute.h"
#include "common/model/activations.h"
#include "common/model/layout.h"
#include "labs/kernel_counts.h"

namespace ladder::lab {
namespace {

constexpr int64_t kB = 2;
constexpr int64_t kCallsOfABlock = 10;  ///< kernels of a block's forward

struct Case {
  std::string policy;
  GptConfig gpt;
  int64_t micros;  ///< in flight together
};

/// A model, and the kernels that it calls in forward.
class Model {
 public:
  Model(const Sheet& sheet, const Case& c) : sheet_(sheet), gpt_(c.gpt) {
    kernels_.count<&Kernels::norm_forward>();
    kernels_.count<&Kernels::matmul_forward>();
    kernels_.count<&Kernels::attention_forward>();
    kernels_.count<&Kernels::residual_forward>();
    kernels_.count<&Kernels::gelu_forward>();
    const std::vector<float> drawn = sheet.normals("weights", layout_.size());
    for (size_t i = 0; i < drawn.size(); ++i) params_.data<float>()[i] = 0.3f * drawn[i];
  }

  const ParamLayout& layout() const { return layout_; }
  Tensor grads() const { return grads_; }
  int64_t calls_again() const { return calls_again_; }

  void forward(const Activations& a, int64_t micro) {
    embed_forward(ctx_, a.embed, words("tokens", micro), w_.embed);
    for (int64_t l = 0; l < gpt_.layers; ++l) block(a, l);
    norm_forward(ctx_, a.norm, a.stat, a.stream(gpt_.layers), w_.norm);
  }

  void backward(const Recompute& recompute, const Activations& a, int64_t micro) {
    const Into into = micro == 0 ? Into::Write : Into::Add;
    head_forward(ctx_, a.logits, a.norm, w_.head_w);
    head_loss_and_gradient(ctx_, losses_, a.logits, words("targets", micro), gpt_.vocab, 1);
    head_backward_input(ctx_, d_.branch, a.logits, w_.head_w);
    head_backward_weight(ctx_, dw_.head_w, a.logits, a.norm, into);
    norm_backward_input(ctx_, d_.stream, d_.branch, a.stream(gpt_.layers), a.stat, w_.norm);
    norm_backward_weight(ctx_, dw_.norm, d_.branch, a.stream(gpt_.layers), a.stat, into);
    for (int64_t l = gpt_.layers; l-- > 0;) {
      again(recompute, a, l);
      backward_block(a, static_cast<size_t>(l), into);
    }
    embed_backward_weight(ctx_, dw_.embed, d_.stream, words("tokens", micro), into);
  }

 private:
  void block(const Activations& a, int64_t l) {
    const BlockTensors& p = w_.blocks[static_cast<size_t>(l)];
    const BlockActs& s = a.blocks[static_cast<size_t>(l)];
    norm_forward(ctx_, s.norm1, s.stat1, a.stream(l), p.norm1);
    attn_forward(ctx_, a.product, s.attn, s.norm1, p.attn);
    residual_forward(ctx_, s.mid, a.stream(l), a.product, p.residual1_b);
    norm_forward(ctx_, s.norm2, s.stat2, s.mid, p.norm2);
    mlp_forward(ctx_, a.product, s.mlp, s.norm2, p.mlp);
    residual_forward(ctx_, s.out, s.mid, a.product, p.residual2_b);
  }

  /// The same as recompute_segment() of main.cpp.
  void again(const Recompute& recompute, const Activations& a, int64_t l) {
    const int64_t before = CountedKernels::calls();
    const Range segment = recompute.segment_before(l);
    CHECK(segment.begin >= 0 && segment.end <= gpt_.layers,
          "before block {} of {}: segment [{}, {})", l, gpt_.layers, segment.begin, segment.end);
    for (int64_t b = segment.begin; b < segment.end; ++b) block(a, b);
    const auto i = static_cast<size_t>(l);
    recompute_parts(ctx_, recompute.parts_before(l), a.blocks[i], a.stream(l), w_.blocks[i]);
    calls_again_ += CountedKernels::calls() - before;
  }

  void backward_block(const Activations& a, size_t l, Into into) {
    const BlockTensors& p = w_.blocks[l];
    const BlockTensors& g = dw_.blocks[l];
    const BlockActs& s = a.blocks[l];
    residual_backward_weight(ctx_, g.residual2_b, d_.stream, into);
    mlp_backward_input(ctx_, d_.branch, d_.mlp, d_.stream, s.mlp, p.mlp);
    mlp_backward_weight(ctx_, g.mlp, d_.mlp, d_.stream, s.norm2, s.mlp, into);
    norm_backward_input(ctx_, d_.norm, d_.branch, s.mid, s.stat2, p.norm2);
    norm_backward_weight(ctx_, g.norm2, d_.branch, s.mid, s.stat2, into);
    residual_backward_input(ctx_, d_.stream, d_.norm);
    residual_backward_weight(ctx_, g.residual1_b, d_.stream, into);
    attn_backward_input(ctx_, d_.branch, d_.attn, d_.stream, s.attn, p.attn);
    attn_backward_weight(ctx_, g.attn, d_.attn, d_.stream, s.norm1, s.attn, into);
    const Tensor inp = a.stream(static_cast<int64_t>(l));
    norm_backward_input(ctx_, d_.norm, d_.branch, inp, s.stat1, p.norm1);
    norm_backward_weight(ctx_, g.norm1, d_.branch, inp, s.stat1, into);
    residual_backward_input(ctx_, d_.stream, d_.norm);
  }

  /// Tokens (B,T), I32, that depend on the seed.
  Tensor words(const char* what, int64_t micro) {
    const Tensor all = arena_.alloc(Mem::Workspace, what, Dtype::I32, {kB, gpt_.seq_len});
    const Random random(sheet_.seed() + static_cast<uint64_t>(micro), what);
    for (int64_t i = 0; i < all.size(); ++i)
      all.data<int32_t>()[i] = static_cast<int32_t>(random.below(gpt_.vocab, i));
    return all;
  }

  const Sheet& sheet_;
  const GptConfig& gpt_;
  ParamLayout layout_{gpt_};
  CountedKernels kernels_;
  const Ctx& ctx_ = kernels_.ctx();
  Arena arena_;
  Tensor params_ = arena_.zeros(Mem::Param, "params", Dtype::F32, {layout_.size()});
  Tensor grads_ = arena_.zeros(Mem::Grad, "grads", Dtype::F32, {layout_.size()});
  Tensor losses_ = arena_.zeros(Mem::Workspace, "losses", Dtype::F32, {kB});
  GptTensors w_ = layout_.view(params_), dw_ = layout_.view(grads_);
  ActGrads d_ = alloc_act_grads(arena_, gpt_, kB);
  int64_t calls_again_ = 0;
};

std::string section_name(int64_t s, int64_t L) {
  if (s == 0) return "embedding";
  return s == L + 1 ? "head" : fmt::format("block {}", s - 1);
}

void train(Sheet& sheet, const Case& c) {
  const Recompute recompute(c.policy, c.gpt.layers, /*at_once=*/c.micros == 1);
  Model model(sheet, c);
  ActivationPlan plan = recompute.plan({});
  plan.slots = c.micros;
  plan.own_sets = c.micros == 1 || !recompute.drops_blocks();
  Arena arena;
  const std::vector<Activations> acts = alloc_slots(arena, c.gpt, kB, plan);
  for (int64_t k = 0; k < c.micros; ++k) model.forward(acts[static_cast<size_t>(k)], k);
  for (int64_t k = 0; k < c.micros; ++k) model.backward(recompute, acts[static_cast<size_t>(k)], k);
  for (int64_t s = 0; s < model.layout().sections(); ++s)
    sheet.bits("gradients/" + section_name(s, c.gpt.layers),
               model.layout().section_of(model.grads(), s));
  sheet.without_idea("again", c.micros * c.gpt.layers * kCallsOfABlock);
  sheet.count("again", model.calls_again());
  sheet.without_idea("kept", activation_bytes(c.gpt, kB, {.slots = c.micros}));
  sheet.count("kept", arena.peak()[Mem::Activation]);
}

/// Plans of some policies, with other micro-batches in between and without. Each row is right as a
/// whole or wrong.
void formulas(Sheet& sheet, const GptConfig& gpt, const std::vector<std::string>& policies) {
  for (const std::string& policy : policies)
    for (const bool at_once : {true, false}) {
      const Recompute recompute(policy, gpt.layers, at_once);
      const std::string when =
          fmt::format("{} of {} blocks{}", policy, gpt.layers, at_once ? "" : ", 2 in flight");
      sheet.text("formula/blocks_again: " + when, fmt::format("{}", recompute.blocks_again()));
      sheet.text("formula/extra_flops: " + when, fmt::format("{}", recompute.extra_flops(gpt, 3)));
    }
}

/// The plan over a base that keeps less already.
void plan_over(Sheet& sheet, const GptConfig& gpt, const std::string& policy) {
  const ActivationPlan base{.own_norm = false, .own_att = false, .own_act = false};
  sheet.without_idea("kept", activation_bytes(gpt, kB, {}));
  sheet.count("kept", activation_bytes(gpt, kB, Recompute(policy, gpt.layers).plan(base)));
}

}  // namespace

void cases(Sheet& sheet) {
  const GptConfig gpt{.name = "lab",
                      .layers = sheet.pick<int64_t>("layers", {5, 7}),
                      .heads = 2,
                      .channels = sheet.pick<int64_t>("channels", {8, 12}),
                      .seq_len = sheet.pick<int64_t>("tokens", {3, 6}),
                      .positions = 6,
                      .vocab = 11,
                      .padded_vocab = 13};
  // A segment of all blocks is not `none`, if others come in between.
  const std::vector<std::string> blocks{"full", "every:2", "every:3",
                                        fmt::format("every:{}", gpt.layers), "none"},
      parts{"selective", "selective:attention", "selective:mlp"};
  for (const auto& policies : {blocks, parts})
    for (const std::string& policy : policies)
      for (const int64_t micros : {1, 2})
        sheet.run(fmt::format("{} of {} blocks, {} in flight", policy, gpt.layers, micros),
                  [&] { train(sheet, {.policy = policy, .gpt = gpt, .micros = micros}); });
  for (const char* policy : {"none", "every:2", "every:3", "selective:attention", "selective:mlp"})
    sheet.run(fmt::format("{}, of parts in one place", policy),
              [&] { plan_over(sheet, gpt, policy); });
  sheet.run("blocks, by formula", [&] { formulas(sheet, gpt, blocks); });
  sheet.run("parts, by formula", [&] { formulas(sheet, gpt, parts); });
}

}  // namespace ladder::lab
