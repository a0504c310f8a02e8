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

// Ranks share groups of heads (rows of qkv) and channels of the MLP (rows of fc). The projections
// read what comes out of these by columns. Megatron-LM, arXiv 1909.08053.
BlockTable block_table(const GptConfig& config) {
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
  return has_llama_names(config) ? fmt::format("model.layers.{}.", l)
                                 : fmt::format("transformer.h.{}.", l);
}

}  // namespace ladder
