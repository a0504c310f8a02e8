// Casts, scales over steps, the codes of a small model, and attention that reads codes.
#include "labs/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "chapters/16_fp8/fp8.h"
#include "common/model/activations.h"
#include "labs/kernel_counts.h"

namespace ladder::lab {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::string codes_of(const Tensor& x) {
  const auto* codes = static_cast<const uint8_t*>(x.ptr);
  return fmt::format("{}", fmt::join(std::vector<int>(codes, codes + x.size()), " "));
}

// ---- casts --------------------------------------------------------------------------------------

/// Numbers of all sizes that a format of 8 bits has, numbers beyond them, and numbers between two
/// codes.
Tensor numbers(const Sheet& sheet, Arena& arena, uint64_t stream) {
  const Tensor x = sheet.drawn(arena, "numbers", {8, 12}, stream);
  float* values = x.data<float>();
  for (int64_t i = 0; i < x.size(); ++i) {
    values[i] = std::ldexp(values[i], static_cast<int>(i % 32) - 20);
    if (i % 5 == 0) values[i] = std::ldexp(std::round(values[i] * 64), -6);
  }
  return x;
}

void run_casts(Sheet& sheet, const char* name, Dtype dtype) {
  Arena arena;
  CountedKernels kernels;
  const Ctx& ctx = kernels.ctx();
  // The cast of kernels/ref, which the student writes.
  const auto cast = ref_kernels().cast;
  for (const float scale : {1.0f, 128.0f, 0x1p-4f}) {
    const std::string where = fmt::format("casts/{}, scale {}", name, scale);
    Fp8Scale fp8{.scale = scale, .amax = 0};
    const Tensor inp = numbers(sheet, arena, 0);
    Tensor out = arena.zeros(Mem::Workspace, "out", dtype, inp.shape);
    if (is_fp8(dtype)) out.fp8 = &fp8;
    const auto rows = [&](const std::string& what) {
      if (is_fp8(dtype)) {
        sheet.text(where + ": codes " + what, codes_of(out));
        sheet.text(where + ": amax " + what,
                   std::isnan(fp8.amax) ? "NaN" : fmt::format("{}", fp8.amax));
      } else {
        sheet.bits(where + ": " + what, out);
      }
    };
    cast(ctx, out, inp);
    rows("of FP32");
    // Smaller numbers, in 16 bits.
    const Tensor narrow = arena.zeros(Mem::Workspace, "narrow", Dtype::BF16, inp.shape);
    ctx.kernels->cast(ctx, narrow, inp);
    ctx.kernels->scale(ctx, narrow, 0.25f);
    cast(ctx, out, narrow);
    rows("of smaller ones in BF16");
    const Tensor half = arena.zeros(Mem::Workspace, "half", Dtype::F16, inp.shape);
    ctx.kernels->cast(ctx, half, narrow);
    cast(ctx, out, half);
    rows("of FP16");
    for (const float special : {kInf, -kInf, kNaN}) {
      const Tensor one = numbers(sheet, arena, 1);
      one.data<float>()[7] = special;
      fp8.amax = 0;
      cast(ctx, out, one);
      if (!std::isnan(special) || is_fp8(dtype)) rows(fmt::format("with {}", special));
    }
    if (!is_fp8(dtype)) return;
    cast(ctx, out, inp);
    rows("after a NaN");
  }
}

// ---- scales -------------------------------------------------------------------------------------

void run_scales(Sheet& sheet) {
  const std::vector<float> normals = sheet.normals("amax", 40);
  const auto play = [&](const char* name, auto&& amax_of) {
    for (const Dtype dtype : {Dtype::E4M3, Dtype::E5M2}) {
      DelayedScale rule{.dtype = dtype};
      Fp8Scale now;
      std::vector<float> scales;
      for (size_t i = 0; i < normals.size(); ++i) {
        now.amax = amax_of(i);
        now = rule.next(now);
        scales.push_back(now.scale);
        scales.push_back(now.amax);
      }
      sheet.bits(fmt::format("scales/{}, {}", name, dtype == Dtype::E4M3 ? "E4M3" : "E5M2"),
                 scales);
    }
  };
  const auto size = [&](size_t i) { return std::exp(3 * normals[i]); };
  play("amax of all sizes", size);
  play("powers of two", [&](size_t i) { return std::exp2(std::round(4 * normals[i])); });
  // A quotient just below a power of two, which a rounded logarithm takes for the power.
  play("just above 1.75", [&](size_t i) {
    return std::nextafter(std::ldexp(1.75f, -static_cast<int>(i % 20)), 2.0f);
  });
  play("one large amax", [&](size_t i) { return i == 3 ? 4000.0f : 1 + std::abs(normals[i]); });
  play("zeros", [&](size_t i) { return i % 20 == 2 ? size(i) : 0; });
  play("NaN and infinity", [&](size_t i) {
    return i % 7 == 3 ? kNaN : i % 7 == 5 ? kInf : size(i);
  });
  play("far too small", [&](size_t i) { return 1e-30f * size(i); });
  play("far too large", [&](size_t i) { return 1e30f * size(i); });
}

// ---- a model ------------------------------------------------------------------------------------

constexpr int64_t kB = 2;
constexpr size_t kLayers = 2;

struct Model {
  Model(const Sheet& sheet, bool on)
      : dtype(on ? Dtype::BF16 : Dtype::F32), fp8(arena, gpt, kB, kLayers, on) {
    ctx.kernels->cast(ctx, params, sheet.drawn(arena, "weights", params.shape));
    fp8.attach(w);
  }
  /// Makes codes of all that the products of a step read.
  void encode_all(const Sheet& sheet, uint64_t stream, float size) {
    for (size_t l = 0; l < kLayers; ++l)
      for (const Fp8Codes* part : {&fp8.attn(l), &fp8.mlp(l)})
        for (const Tensor& codes : {part->inp, part->mid, part->dmid, part->dproduct}) {
          const Tensor x = sheet.drawn(arena, "activations", codes.shape, ++stream);
          ctx.kernels->scale(ctx, x, size);
          ctx.kernels->cast(ctx, codes, x);
        }
  }

  Dtype dtype;  ///< without codes FP32, whose sums show their leaves
  GptConfig gpt{.name = "lab",
                .layers = kLayers,
                .heads = 2,
                .channels = 8,
                .seq_len = 3,
                .positions = 6,
                .vocab = 11,
                .padded_vocab = 13,
                .position = Position::Rope};
  ParamLayout layout{gpt};
  CountedKernels kernels;
  const Ctx& ctx = kernels.ctx();
  Arena arena;
  Tensor params = arena.zeros(Mem::Param, "params", dtype, {layout.size()});
  GptTensors w = layout.view(params);
  Fp8 fp8;
};

void run_steps(Sheet& sheet) {
  Model m(sheet, true);
  const auto rows = [&](const std::string& when) {
    sheet.bits("steps/" + when + "scale and amax", m.fp8.scales());
    sheet.text("steps/" + when + "codes of qkv", codes_of(m.w.blocks[0].attn.qkv.w));
    sheet.text("steps/" + when + "codes of the MLP", codes_of(m.w.blocks[1].mlp.proj_w));
  };
  m.fp8.start(m.ctx);
  rows("start: ");
  for (uint64_t step = 0; step < 4; ++step) {
    if (step % 2 == 1) m.encode_all(sheet, 1000 * step, 1e4f);  // a validation
    m.fp8.begin_step();
    m.encode_all(sheet, 1000 * step + 500, std::ldexp(0.5f, static_cast<int>(step)));
    m.ctx.kernels->scale(m.ctx, m.params, 2);
    m.fp8.end_step(m.ctx);
    rows(fmt::format("step {}: ", step));
  }
  m.ctx.kernels->scale(m.ctx, m.params, 2);  // other weights, as from a checkpoint
  m.fp8.start(m.ctx);
  rows("start: with a history, ");
}

void run_bad_steps(Sheet& sheet) {
  for (const float amax : {2.0f, kInf, kNaN})
    for (const size_t tensor : {3, 5, 23}) {  // a weight, an input, and the last gradient
      Model m(sheet, true);
      m.fp8.start(m.ctx);
      m.fp8.scales().data<float>()[2 * tensor + 1] = amax;
      const std::string where = fmt::format("steps/amax {}: of tensor {}, ", amax, tensor);
      const auto said = [&](const char* bad) {
        const std::string reason = m.fp8.judge(m.ctx, bad);
        return reason.empty() ? "update" : reason == bad ? "the reason that was there" : "skipped";
      };
      sheet.text(where + "a good step", said(""));
      sheet.text(where + "a bad step", said("the loss is NaN"));
      const Tensor losses = sheet.drawn(m.arena, "losses", {kB});
      m.fp8.judge_losses(m.ctx, losses);
      const int64_t bad = std::count_if(losses.data<float>(), losses.data<float>() + kB,
                                        [](float loss) { return std::isnan(loss); });
      sheet.text(where + "losses", fmt::format("{} of {} are NaN", bad, kB));
    }
}

void run_parts(Sheet& sheet, bool on) {
  Model m(sheet, on);
  m.kernels.count<&Kernels::cast>();
  m.fp8.start(m.ctx);
  const ActivationPlan plan{.dtype = m.dtype};
  const Activations acts = alloc_activations(m.arena, m.gpt, kB, plan);
  const ActGrads d = alloc_act_grads(m.arena, m.gpt, kB, plan);
  const Tensor flat = m.arena.zeros(Mem::Grad, "grads", Dtype::F32, {m.layout.size()});
  const AttnTensors g = m.layout.view(flat).blocks[1].attn, &p = m.w.blocks[1].attn;
  const BlockActs& s = acts.blocks[1];
  const Fp8Codes& codes = m.fp8.attn(1);
  m.ctx.kernels->cast(m.ctx, s.norm1, sheet.drawn(m.arena, "norm", s.norm1.shape));
  m.ctx.kernels->cast(m.ctx, d.stream, sheet.drawn(m.arena, "stream", d.stream.shape));
  const std::string how = fmt::format("parts/{} codes: ", on ? "with" : "without");

  const int64_t before = CountedKernels::calls();
  attn_forward(m.ctx, acts.product, s.attn, codes, s.norm1, p);
  sheet.bits(how + "forward", acts.product);
  attn_backward_input(m.ctx, d.branch, d.attn, d.stream, s.attn, codes, p);
  sheet.bits(how + "gradient of the input", d.branch);
  // With codes all blocks share the memory of these: by now another block may have used it.
  if (on)
    for (const Tensor& shared : {s.norm1, s.attn.att}) m.ctx.kernels->scale(m.ctx, shared, kNaN);
  attn_backward_weight(m.ctx, g, d.attn, d.stream, s.norm1, s.attn, codes, Into::Write);
  sheet.bits(how + "gradient of qkv's weights", g.qkv.w);
  sheet.bits(how + "gradient of qkv's bias", g.qkv.b);
  sheet.bits(how + "gradient of proj's weights", g.proj_w);
  if (!on) return;
  // Without the idea each product makes codes of what it reads, except of weights.
  sheet.without_idea("again", 8);
  sheet.count("again", CountedKernels::calls() - before);
}

}  // namespace

void cases(Sheet& sheet) {
  for (const auto& [name, dtype] : {std::pair{"E4M3", Dtype::E4M3},
                                    {"E5M2", Dtype::E5M2},
                                    {"BF16", Dtype::BF16},
                                    {"F16", Dtype::F16},
                                    {"F32", Dtype::F32}})
    sheet.run(fmt::format("cast to {}", name), [&] { run_casts(sheet, name, dtype); });
  sheet.run("40 steps", [&] { run_scales(sheet); });
  sheet.run("a model", [&] { run_steps(sheet); });
  sheet.run("bad steps", [&] { run_bad_steps(sheet); });
  for (const bool on : {true, false})
    sheet.run(on ? "attention, fp8" : "attention, fp32", [&] { run_parts(sheet, on); });
}

}  // namespace ladder::lab
