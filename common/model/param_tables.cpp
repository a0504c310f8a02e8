#include "common/model/param_tables.h"

namespace ladder {
namespace {

/// The rows of parameters that the model has.
template <class Section>
std::vector<ParamRow<Section>> there(std::vector<ParamRow<Section>> rows) {
  std::erase_if(rows, [](const ParamRow<Section>& row) { return !row.is_there; });
  return rows;
}

ModelTable norm_table(const GptConfig& config) {
  const int64_t C = config.channels;
  using G = GptTensors;
  return there<G>({
      {"transformer.ln_f.weight",
       "model.norm.weight",
       Role::Gain,
       {C},
       Cut::None,
       [](G& g) { return &g.norm.w; }},
      {"transformer.ln_f.bias",
       nullptr,
       Role::Bias,
       {C},
       Cut::None,
       [](G& g) { return &g.norm.b; },
       config.norm == Norm::Layer},
  });
}

}  // namespace

ModelTable embed_table(const GptConfig& config) {
  if (config.adapter_rank > 0) return {};
  const int64_t C = config.channels, V = config.vocab, Vp = config.padded_vocab;
  const int64_t positions = config.positions;
  using G = GptTensors;
  return there<G>({
      {"transformer.wte.weight",
       "model.embed_tokens.weight",
       Role::Embedding,
       {Vp, C},
       Cut::Rows,
       [](G& g) { return &g.embed.wte; },
       true,
       V},
      {"transformer.wpe.weight",
       nullptr,
       Role::Position,
       {positions, C},
       Cut::None,
       [](G& g) { return &g.embed.wpe; },
       config.position == Position::Learned},
  });
}

/// Adapters have the names that peft gives them. A LLaMA has three layers where we have qkv, and
/// two where we have fc.
static BlockTable adapter_table(const GptConfig& config) {
  const int64_t C = config.channels, F = config.inner(), r = config.adapter_rank;
  const bool llama = family(config) == Family::Llama;
  const int64_t qkv = llama ? 3 * r : r, fc = llama ? 2 * r : r;
  using B = BlockTensors;
  return {
      {"attn.c_attn.lora_A.weight",
       "self_attn.qkv_proj.lora_A.weight",
       Role::AdapterA,
       {qkv, C},
       Cut::None,
       [](B& b) { return &b.adapters.qkv.a; }},
      {"attn.c_attn.lora_B.weight",
       "self_attn.qkv_proj.lora_B.weight",
       Role::AdapterQkvB,
       {config.qkv_rows(), qkv},
       Cut::None,
       [](B& b) { return &b.adapters.qkv.b; }},
      {"attn.c_proj.lora_A.weight",
       "self_attn.o_proj.lora_A.weight",
       Role::AdapterA,
       {r, C},
       Cut::None,
       [](B& b) { return &b.adapters.proj.a; }},
      {"attn.c_proj.lora_B.weight",
       "self_attn.o_proj.lora_B.weight",
       Role::AdapterB,
       {C, r},
       Cut::None,
       [](B& b) { return &b.adapters.proj.b; }},
      {"mlp.c_fc.lora_A.weight",
       "mlp.gate_up_proj.lora_A.weight",
       Role::AdapterA,
       {fc, C},
       Cut::None,
       [](B& b) { return &b.adapters.fc.a; }},
      {"mlp.c_fc.lora_B.weight",
       "mlp.gate_up_proj.lora_B.weight",
       llama ? Role::AdapterGateUpB : Role::AdapterB,
       {config.fc_rows(), fc},
       Cut::None,
       [](B& b) { return &b.adapters.fc.b; }},
      {"mlp.c_proj.lora_A.weight",
       "mlp.down_proj.lora_A.weight",
       Role::AdapterA,
       {r, F},
       Cut::None,
       [](B& b) { return &b.adapters.mlp_proj.a; }},
      {"mlp.c_proj.lora_B.weight",
       "mlp.down_proj.lora_B.weight",
       Role::AdapterB,
       {C, r},
       Cut::None,
       [](B& b) { return &b.adapters.mlp_proj.b; }},
  };
}

// Ranks share groups of heads (rows of qkv) and channels of the MLP (rows of fc). The projections
// read what comes out of these by columns. Megatron-LM, arXiv 1909.08053.
BlockTable block_table(const GptConfig& config) {
  if (config.adapter_rank > 0) return adapter_table(config);
  const int64_t C = config.channels, F = config.inner();
  const int64_t qkv = config.qkv_rows(), fc = config.fc_rows();
  const int64_t E = config.experts.count, expert_F = config.expert_inner();
  const bool layer_norm = config.norm == Norm::Layer, bias = config.bias;
  const bool mlp = F > 0, experts = E > 0;
  const Role fc_role = config.mlp == Mlp::SwiGlu ? Role::GateUp : Role::Matrix;
  using B = BlockTensors;
  return there<B>({
      {"ln_1.weight",
       "input_layernorm.weight",
       Role::Gain,
       {C},
       Cut::None,
       [](B& b) { return &b.norm1.w; }},
      {"ln_1.bias",
       nullptr,
       Role::Bias,
       {C},
       Cut::None,
       [](B& b) { return &b.norm1.b; },
       layer_norm},
      {"attn.c_attn.weight",
       "self_attn.qkv_proj.weight",
       Role::Qkv,
       {qkv, C},
       Cut::Rows,
       [](B& b) { return &b.attn.qkv.w; }},
      {"attn.c_attn.bias",
       nullptr,
       Role::QkvBias,
       {qkv},
       Cut::Rows,
       [](B& b) { return &b.attn.qkv.b; },
       bias},
      {"attn.c_proj.weight",
       "self_attn.o_proj.weight",
       Role::Projection,
       {C, C},
       Cut::Columns,
       [](B& b) { return &b.attn.proj_w; }},
      {"attn.c_proj.bias",
       nullptr,
       Role::ProjectionBias,
       {C},
       Cut::None,
       [](B& b) { return &b.residual1_b; },
       bias},
      {"ln_2.weight",
       "post_attention_layernorm.weight",
       Role::Gain,
       {C},
       Cut::None,
       [](B& b) { return &b.norm2.w; }},
      {"ln_2.bias",
       nullptr,
       Role::Bias,
       {C},
       Cut::None,
       [](B& b) { return &b.norm2.b; },
       layer_norm},
      {"mlp.c_fc.weight",
       "mlp.gate_up_proj.weight",
       fc_role,
       {fc, C},
       Cut::Rows,
       [](B& b) { return &b.mlp.fc.w; },
       mlp},
      {"mlp.c_fc.bias",
       nullptr,
       Role::Bias,
       {fc},
       Cut::Rows,
       [](B& b) { return &b.mlp.fc.b; },
       bias},
      {"mlp.c_proj.weight",
       "mlp.down_proj.weight",
       Role::Projection,
       {C, F},
       Cut::Columns,
       [](B& b) { return &b.mlp.proj_w; },
       mlp},
      {"mlp.c_proj.bias",
       nullptr,
       Role::ProjectionBias,
       {C},
       Cut::None,
       [](B& b) { return &b.residual2_b; },
       bias},
      {"mlp.gate.weight",
       "block_sparse_moe.gate.weight",
       Role::Matrix,
       {E, C},
       Cut::None,
       [](B& b) { return &b.experts.router; },
       experts},
      {"mlp.experts.{}.c_fc.weight",
       "block_sparse_moe.experts.{}.w13.weight",
       Role::GateUp,
       {2 * expert_F, C},
       Cut::None,
       [](B& b) { return &b.experts.fc; },
       experts,
       2 * expert_F,
       E},
      {"mlp.experts.{}.c_proj.weight",
       "block_sparse_moe.experts.{}.w2.weight",
       Role::Projection,
       {C, expert_F},
       Cut::None,
       [](B& b) { return &b.experts.proj_w; },
       experts,
       C,
       E},
  });
}

ModelTable head_table(const GptConfig& config) {
  if (config.adapter_rank > 0) return {};
  const int64_t C = config.channels, V = config.vocab, Vp = config.padded_vocab;
  using G = GptTensors;
  ModelTable rows = norm_table(config);
  rows.push_back({"lm_head.weight",
                  "lm_head.weight",
                  Role::Head,
                  {Vp, C},
                  Cut::Rows,
                  [](G& g) { return &g.head_w; },
                  true,
                  V});
  return rows;
}

ModelTable tied_table(const GptConfig& config) {
  ModelTable rows = embed_table(config);
  for (const ParamRow<GptTensors>& row : norm_table(config)) rows.push_back(row);
  return rows;
}

std::string block_prefix(const GptConfig& config, int64_t l) {
  const char* peft = config.adapter_rank > 0 ? "base_model.model." : "";
  return has_llama_names(config) ? fmt::format("{}model.layers.{}.", peft, l)
                                 : fmt::format("{}transformer.h.{}.", peft, l);
}

}  // namespace ladder
