// LoRA: a linear layer W is frozen, and learns through two thin matrices beside it (Hu et al.,
// arXiv 2106.09685).
//
//   y = W x + s B A x        A (r,K), B (N,r), s = alpha / r; with --lora-rslora alpha / sqrt(r)
//
// The rank r is small beside N and K. A begins uniform in +-1 / sqrt(K), and B with
// zeros: the first loss is that of the base. Let u = s A x and v = s B^T dy; both have r numbers a
// token. Then
//
//   dB = dy u^T,   dA = v x^T,   dx = W^T dy + A^T v
//
// The gradient of W is not computed, so W has no state either. u is not kept. Backward computes it
// again from x, which forward keeps anyway.
//
// Three layers of a LLaMA (q, k, v) are one matrix here, and so are gate and up. Each layer has an
// A of its own, so a row of B must read the A x of its own layer. A stack has them in one product:
//
//   A = [A_q; A_k; A_v] (3r,K)       B (N,3r): the row of a key has its numbers in columns r..2r-1,
//                                    and zeros elsewhere
//
// These zeros stay if their gradient is zero: keep_stacks_apart() makes it zero.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/05_mixed_precision/precision.h"
#include "common/error.h"
#include "common/hf/file_names.h"
#include "common/json.h"
#include "common/model/parts.h"
#include "common/run/command_line.h"
#include "common/save/directory.h"
#include "common/save/hf_layout.h"
#include "kernels/arena.h"
#include "kernels/cost.h"
#include "kernels/transfer.h"

namespace ladder {

struct LoraOptions {
  int64_t rank = 0;
  double alpha = 0;  ///< 0: r
  bool rslora = false;

  void add_to(CommandLine& line) {
    line.group("36_finetune: adapters");
    line.add("--lora-rank", rank,
             "r: only adapters of this rank learn; 0: all weights do, or the adapter in --load");
    line.add("--lora-alpha", alpha, "their product counts alpha / r times; 0: alpha is r",
             {.needs = {"--lora-rank"}});
    line.add("--lora-rslora", rslora, "alpha / sqrt(r) instead", {.needs = {"--lora-rank"}});
  }
  /// If --load is an adapter, takes what its folder says of it. @throws UserError
  void check(const std::string& load) {
    if (!(alpha >= 0 && alpha <= 1e6))
      throw UserError("--lora-alpha must be from 0 to 1000000, not {}", alpha);
    require_range("--lora-rank", rank, 0, 1 << 14);
    const std::filesystem::path file =
        checkpoint_in(load).value_or(load) / std::filesystem::path(kAdapterConfigFile);
    std::error_code ignored;
    if (load.empty() || !std::filesystem::exists(file, ignored)) return;
    const nlohmann::json theirs = read_json(file.string());
    try {
      take(theirs);
    } catch (const nlohmann::json::exception&) {
      throw UserError("{}: lacks r or lora_alpha", file.string());
    } catch (const UserError& e) {
      throw UserError("{}: {}", file.string(), e.what());
    }
  }

  bool on() const { return rank > 0; }
  /// s of the formula above.
  float scale() const {
    const auto r = static_cast<double>(rank);
    return static_cast<float>(own_alpha() / (rslora ? std::sqrt(r) : r));
  }
  double own_alpha() const { return alpha == 0 ? static_cast<double>(rank) : alpha; }
  /// The model whose parameters learn: the adapters of `gpt`, or `gpt` itself.
  GptConfig learned(GptConfig gpt) const {
    gpt.adapter_rank = rank;
    if (on()) gpt.tied_head = false;
    return gpt;
  }

 private:
  void take(const nlohmann::json& theirs) {
    const int64_t r = theirs.at("r");
    const double their_alpha = theirs.at("lora_alpha");
    const bool rs = theirs.value("use_rslora", false);
    for (const char* other : {"use_dora", "rank_pattern", "alpha_pattern", "modules_to_save"})
      if (const auto at = theirs.find(other);
          at != theirs.end() && !at->is_null() && !at->empty() && *at != false)
        throw UserError("{} is {}; legal is none", other, shown(*at));
    if (theirs.value("peft_type", "LORA") != "LORA" || theirs.value("bias", "none") != "none")
      throw UserError("legal are peft_type LORA and bias none");
    if (on() && (r != rank || their_alpha != own_alpha() || rs != rslora))
      throw UserError(
          "r {}, lora_alpha {}, use_rslora {}; legal are the same flags, or none of them", r,
          their_alpha, rs);
    require_range("r", r, 1, 1 << 14);
    rank = r;
    alpha = their_alpha;
    rslora = rs;
  }
};

/// What peft reads beside the adapter's weights.
inline nlohmann::json adapter_config(const LoraOptions& lora, const GptConfig& gpt,
                                     const std::string& base) {
  const bool llama = has_llama_names(gpt);
  const std::vector<std::string> modules =
      llama ? std::vector<std::string>{"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                       "gate_proj", "up_proj", "down_proj"}
            : std::vector<std::string>{"c_attn", "c_proj", "c_fc"};
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base},
          {"r", lora.rank},
          {"lora_alpha", lora.own_alpha()},
          {"use_rslora", lora.rslora},
          {"lora_dropout", 0.0},
          {"bias", "none"},
          {"target_modules", modules},
          {"fan_in_fan_out", !llama},
          {"inference_mode", true}};
}

/// The arithmetic of adapters. A block without adapters is computed as in chapter 06.
class Lora {
 public:
  /// @param rows of a micro-batch at most
  Lora(Arena& arena, const LoraOptions& options, const GptConfig& gpt, int64_t rows, Dtype dtype)
      : scale_(options.scale()) {
    if (!options.on()) return;
    narrow_ = arena.alloc(Mem::Workspace, "lora_narrow", dtype,
                          {rows * gpt.seq_len * narrow(gpt, options)});
    product_ = arena.alloc(Mem::Workspace, "lora_product", dtype, {rows * gpt.seq_len * wide(gpt)});
  }
  static int64_t bytes(const LoraOptions& options, const GptConfig& gpt, int64_t rows,
                       Dtype dtype) {
    return options.on() ? size_of(dtype) * rows * gpt.seq_len * (narrow(gpt, options) + wide(gpt))
                        : 0;
  }

  /// Like the functions of the same names in common/model/parts.h. Rotary positions turn q and k
  /// after the adapter has added its product to them.
  void attn_forward(const Ctx& ctx, Tensor product, const AttnSaved& saved, Tensor inp,
                    const BlockTensors& p) const {
    if (!p.adapters.qkv.a) return ladder::attn_forward(ctx, product, saved, inp, p.attn);
    AttnSaved unturned = saved;
    unturned.angles = {};
    qkv_forward(ctx, unturned, inp, p.attn);
    forward(ctx, saved.qkv, inp, p.adapters.qkv);
    turn(ctx, saved.qkv, saved, /*back=*/false);
    attend_forward(ctx, saved);
    proj_forward(ctx, product, saved, p.attn);
    forward(ctx, product, saved.att, p.adapters.proj);
  }
  void mlp_forward(const Ctx& ctx, Tensor product, const MlpSaved& saved, Tensor inp,
                   const BlockTensors& p) const {
    if (!p.adapters.fc.a) return ladder::mlp_forward(ctx, product, saved, inp, p.mlp);
    linear(ctx, saved.fc, inp, p.mlp.fc.w, p.mlp.fc.b, 1);
    forward(ctx, saved.fc, inp, p.adapters.fc);
    act_forward(ctx, saved);
    linear(ctx, product, saved.act, p.mlp.proj_w, {}, ctx.leaves);
    forward(ctx, product, saved.act, p.adapters.mlp_proj);
  }
  /// The gradient of what the branch has read, and of its parameters that learn.
  void attn_backward(const Ctx& ctx, Tensor dinp, const BlockTensors& g, const AttnGrads& d,
                     Tensor dproduct, Tensor inp, const AttnSaved& saved, const BlockTensors& p,
                     Into into) const {
    if (!p.adapters.qkv.a) {
      attn_backward_input(ctx, dinp, d, dproduct, saved, p.attn);
      return attn_backward_weight(ctx, g.attn, d, dproduct, inp, saved, into);
    }
    proj_backward_input(ctx, d, dproduct, p.attn);
    backward(ctx, d.datt, g.adapters.proj, dproduct, saved.att, p.adapters.proj, into);
    attend_backward_input(ctx, d, saved);
    qkv_backward_input(ctx, dinp, d, saved, p.attn);
    backward(ctx, dinp, g.adapters.qkv, d.dqkv, inp, p.adapters.qkv, into);
  }
  void mlp_backward(const Ctx& ctx, Tensor dinp, const BlockTensors& g, const MlpGrads& d,
                    Tensor dproduct, Tensor inp, const MlpSaved& saved, const BlockTensors& p,
                    Into into) const {
    if (!p.adapters.fc.a) {
      mlp_backward_input(ctx, dinp, d, dproduct, saved, p.mlp);
      return mlp_backward_weight(ctx, g.mlp, d, dproduct, inp, saved, into);
    }
    linear_backward(ctx, d.dact, dproduct, p.mlp.proj_w, 1);
    backward(ctx, d.dact, g.adapters.mlp_proj, dproduct, saved.act, p.adapters.mlp_proj, into);
    act_backward(ctx, d, saved);
    linear_backward(ctx, dinp, d.dfc, p.mlp.fc.w, ctx.leaves);
    backward(ctx, dinp, g.adapters.fc, d.dfc, inp, p.adapters.fc, into);
  }

 private:
  /// How many numbers a token has in the widest u, and on the wider side of the widest layer.
  static int64_t narrow(const GptConfig& gpt, const LoraOptions& options) {
    return (family(gpt) == Family::Llama ? 3 : 1) * options.rank;
  }
  static int64_t wide(const GptConfig& gpt) {
    return std::max({gpt.qkv_rows(), gpt.fc_rows(), gpt.inner(), gpt.channels});
  }

  /// y += s B A x. y (R,T,N), x (R,T,K)
  void forward(const Ctx& ctx, Tensor y, Tensor x, const Adapter& w) const {
    const Tensor u = as(narrow_, x, w.a.dim(0)), By = as(product_, x, w.b.dim(0));
    ctx.kernels->matmul_forward(ctx, u, x, w.a, {}, 1);
    ctx.kernels->scale(ctx, u, scale_);
    ctx.kernels->matmul_forward(ctx, By, u, w.b, {}, 1);
    ctx.kernels->add(ctx, y, y, By);
  }
  /// dA and dB; dx += s A^T B^T dy
  void backward(const Ctx& ctx, Tensor dx, const Adapter& dw, Tensor dy, Tensor x, const Adapter& w,
                Into into) const {
    const Tensor u = as(narrow_, x, w.a.dim(0)), Av = as(product_, x, w.a.dim(1));
    ctx.kernels->matmul_forward(ctx, u, x, w.a, {}, 1);
    ctx.kernels->scale(ctx, u, scale_);
    ctx.kernels->matmul_backward_weight(ctx, dw.b, dy, u, into);
    const Tensor v = u;  // the same memory
    ctx.kernels->matmul_backward_input(ctx, v, dy, w.b, 1);
    ctx.kernels->scale(ctx, v, scale_);
    ctx.kernels->matmul_backward_weight(ctx, dw.a, v, x, into);
    ctx.kernels->matmul_backward_input(ctx, Av, v, w.a, 1);
    ctx.kernels->add(ctx, dx, dx, Av);
  }
  /// Workspace as (R,T,n), with the R and T of x.
  static Tensor as(Tensor memory, Tensor x, int64_t n) {
    return memory.first(x.dim(0) * x.dim(1) * n).view({x.dim(0), x.dim(1), n});
  }
  /// The layer of the base; ctx.flops counts it, as it does in parts.h.
  static void linear(const Ctx& ctx, Tensor y, Tensor x, Tensor w, Tensor bias, int leaves) {
    if (ctx.flops) *ctx.flops += cost::matmul(x.rows(), w.dim(0), w.dim(1)).flops;
    ctx.kernels->matmul_forward(ctx, y, x, w, bias, leaves);
  }
  static void linear_backward(const Ctx& ctx, Tensor dx, Tensor dy, Tensor w, int leaves) {
    if (ctx.flops) *ctx.flops += cost::matmul(dy.rows(), w.dim(0), w.dim(1)).flops;
    ctx.kernels->matmul_backward_input(ctx, dx, dy, w, leaves);
  }

  float scale_;
  Tensor narrow_, product_;
};

/// Calls f(i) for each element i of a stack's B that must stay zero. A row of B has its numbers in
/// the columns of the layer to which Hugging Face counts that row.
template <class F>
void for_others(const ParamSpec& b, const GptConfig& adapters, F&& f) {
  const int64_t r = adapters.adapter_rank, columns = b.shape.dims[1];
  for (int64_t row = 0; columns > r && row < b.rows; ++row) {
    const auto layer = static_cast<int64_t>(hf_row(b, adapters, row).tensor);
    for (int64_t k = 0; k < columns; ++k)
      if (k / r != layer) f(row * columns + k);
  }
}

inline bool is_b(const ParamSpec& spec) { return spec.role != Role::AdapterA; }

/// Sets the gradient of a stack's zeros to zero.
inline void keep_stacks_apart(const Ctx& ctx, Tensor grads, const ParamLayout& layout) {
  if (family(layout.config()) != Family::Llama || layout.config().adapter_rank == 0) return;
  const HostCopy host = HostCopy::of(ctx, grads);
  for (const ParamSpec& spec : layout.specs())
    if (is_b(spec))
      for_others(spec, layout.config(),
                 [&](int64_t i) { layout.tensor(host.tensor(), spec).data<float>()[i] = 0; });
  host.send();
}

/// W += s B A for every layer with an adapter, rounded once. Tensors are F32, in host memory.
/// @param base the weights of the whole model
inline void merge(Tensor base, const ParamLayout& whole, Tensor adapters, const ParamLayout& layout,
                  float scale) {
  const GptTensors w = whole.view(base), ab = layout.view(adapters);
  const auto add = [scale](Tensor to, const Adapter& adapter) {
    const int64_t K = to.dim(1), S = adapter.a.dim(0);
    for (int64_t n = 0; n < to.dim(0); ++n)
      for (int64_t k = 0; k < K; ++k) {
        double sum = 0;
        for (int64_t j = 0; j < S; ++j)
          sum += double{adapter.b.data<float>()[n * S + j]} * adapter.a.data<float>()[j * K + k];
        float& x = to.data<float>()[n * K + k];
        x = static_cast<float>(x + scale * sum);
      }
  };
  for (size_t l = 0; l < w.blocks.size(); ++l) {
    add(w.blocks[l].attn.qkv.w, ab.blocks[l].adapters.qkv);
    add(w.blocks[l].attn.proj_w, ab.blocks[l].adapters.proj);
    add(w.blocks[l].mlp.fc.w, ab.blocks[l].adapters.fc);
    add(w.blocks[l].mlp.proj_w, ab.blocks[l].adapters.mlp_proj);
  }
}

}  // namespace ladder
