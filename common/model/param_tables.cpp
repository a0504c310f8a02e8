#include "common/model/param_tables.h"

namespace ladder {
namespace {

/// A function, because the formatter gives each item of a list in braces a line of its own.
/// @param rows without padding; 0: no row is padding
ParamRow row(const char* gpt2, const char* llama, Role role, Shape shape, Cut cut, Tensor* place,
             bool is_there = true, int64_t rows = 0, int64_t count = 0) {
  return {gpt2, llama, role, shape, cut, place, is_there, rows > 0 ? rows : shape.dims[0], count};
}

/// The rows of parameters that the model has.
ParamTable there(ParamTable rows) {
  std::erase_if(rows, [](const ParamRow& row) { return !row.is_there; });
  return rows;
}

ParamTable norm_table(const GptConfig& config, GptTensors& g) {
  const int64_t C = config.channels;
  return there({
      row("transformer.ln_f.weight", "model.norm.weight", Role::Gain, {C}, Cut::None, &g.norm.w),
      row("transformer.ln_f.bias", nullptr, Role::Bias, {C}, Cut::None, &g.norm.b,
          config.norm == Norm::Layer),
  });
}

/// Adapters have the names that peft gives them. A LLaMA has three layers where we have qkv, and
/// two where we have fc.
ParamTable adapter_table(const GptConfig& config, BlockTensors& b) {
  const int64_t C = config.channels, F = config.inner(), r = config.adapter_rank;
  const bool llama = family(config) == Family::Llama;
  const int64_t qkv = llama ? 3 * r : r, fc = llama ? 2 * r : r;
  return {
      row("attn.c_attn.lora_A.weight", "self_attn.qkv_proj.lora_A.weight", Role::AdapterA, {qkv, C},
          Cut::None, &b.adapters.qkv.a),
      row("attn.c_attn.lora_B.weight", "self_attn.qkv_proj.lora_B.weight", Role::AdapterQkvB,
          {config.qkv_rows(), qkv}, Cut::None, &b.adapters.qkv.b),
      row("attn.c_proj.lora_A.weight", "self_attn.o_proj.lora_A.weight", Role::AdapterA, {r, C},
          Cut::None, &b.adapters.proj.a),
      row("attn.c_proj.lora_B.weight", "self_attn.o_proj.lora_B.weight", Role::AdapterB, {C, r},
          Cut::None, &b.adapters.proj.b),
      row("mlp.c_fc.lora_A.weight", "mlp.gate_up_proj.lora_A.weight", Role::AdapterA, {fc, C},
          Cut::None, &b.adapters.fc.a),
      row("mlp.c_fc.lora_B.weight", "mlp.gate_up_proj.lora_B.weight",
          llama ? Role::AdapterGateUpB : Role::AdapterB, {config.fc_rows(), fc}, Cut::None,
          &b.adapters.fc.b),
      row("mlp.c_proj.lora_A.weight", "mlp.down_proj.lora_A.weight", Role::AdapterA, {r, F},
          Cut::None, &b.adapters.mlp_proj.a),
      row("mlp.c_proj.lora_B.weight", "mlp.down_proj.lora_B.weight", Role::AdapterB, {C, r},
          Cut::None, &b.adapters.mlp_proj.b),
  };
}

}  // namespace

ParamTable embed_table(const GptConfig& config, GptTensors& g) {
  if (config.adapter_rank > 0) return {};
  const int64_t C = config.channels, V = config.vocab, Vp = config.padded_vocab;
  const int64_t positions = config.positions;
  return there({
      row("transformer.wte.weight", "model.embed_tokens.weight", Role::Embedding, {Vp, C},
          Cut::Rows, &g.embed.wte, true, V),
      row("transformer.wpe.weight", nullptr, Role::Position, {positions, C}, Cut::None,
          &g.embed.wpe, config.position == Position::Learned),
  });
}

// Tensor ranks split groups of heads (rows of qkv) and channels of the MLP (rows of fc). A
// projection then has the columns that read the heads or channels of its rank. Megatron-LM, arXiv
// 1909.08053.
ParamTable block_table(const GptConfig& config, BlockTensors& b) {
  if (config.adapter_rank > 0) return adapter_table(config, b);
  const int64_t C = config.channels, F = config.inner();
  const int64_t qkv = config.qkv_rows(), fc = config.fc_rows();
  const int64_t E = config.experts.count, expert_F = config.expert_inner();
  const bool layer_norm = config.norm == Norm::Layer, bias = config.bias;
  const bool mlp = F > 0, experts = E > 0;
  const Role fc_role = config.mlp == Mlp::SwiGlu ? Role::GateUp : Role::Matrix;
  return there({
      row("ln_1.weight", "input_layernorm.weight", Role::Gain, {C}, Cut::None, &b.norm1.w),
      row("ln_1.bias", nullptr, Role::Bias, {C}, Cut::None, &b.norm1.b, layer_norm),
      row("attn.c_attn.weight", "self_attn.qkv_proj.weight", Role::Qkv, {qkv, C}, Cut::Rows,
          &b.attn.qkv.w),
      row("attn.c_attn.bias", nullptr, Role::QkvBias, {qkv}, Cut::Rows, &b.attn.qkv.b, bias),
      row("attn.c_proj.weight", "self_attn.o_proj.weight", Role::Projection, {C, C}, Cut::Columns,
          &b.attn.proj_w),
      row("attn.c_proj.bias", nullptr, Role::ProjectionBias, {C}, Cut::None, &b.residual1_b, bias),
      row("ln_2.weight", "post_attention_layernorm.weight", Role::Gain, {C}, Cut::None, &b.norm2.w),
      row("ln_2.bias", nullptr, Role::Bias, {C}, Cut::None, &b.norm2.b, layer_norm),
      row("mlp.c_fc.weight", "mlp.gate_up_proj.weight", fc_role, {fc, C}, Cut::Rows, &b.mlp.fc.w,
          mlp),
      row("mlp.c_fc.bias", nullptr, Role::Bias, {fc}, Cut::Rows, &b.mlp.fc.b, bias),
      row("mlp.c_proj.weight", "mlp.down_proj.weight", Role::Projection, {C, F}, Cut::Columns,
          &b.mlp.proj_w, mlp),
      row("mlp.c_proj.bias", nullptr, Role::ProjectionBias, {C}, Cut::None, &b.residual2_b, bias),
      row("mlp.gate.weight", "block_sparse_moe.gate.weight", Role::Matrix, {E, C}, Cut::None,
          &b.experts.router, experts),
      row("mlp.experts.{}.c_fc.weight", "block_sparse_moe.experts.{}.w13.weight", Role::GateUp,
          {2 * expert_F, C}, Cut::None, &b.experts.fc, experts, 2 * expert_F, E),
      row("mlp.experts.{}.c_proj.weight", "block_sparse_moe.experts.{}.w2.weight", Role::Projection,
          {C, expert_F}, Cut::None, &b.experts.proj_w, experts, C, E),
  });
}

ParamTable head_table(const GptConfig& config, GptTensors& g) {
  if (config.adapter_rank > 0) return {};
  const int64_t C = config.channels, V = config.vocab, Vp = config.padded_vocab;
  ParamTable rows = norm_table(config, g);
  rows.push_back(
      row("lm_head.weight", "lm_head.weight", Role::Head, {Vp, C}, Cut::Rows, &g.head_w, true, V));
  return rows;
}

ParamTable tied_table(const GptConfig& config, GptTensors& g) {
  ParamTable rows = embed_table(config, g);
  for (const ParamRow& row : norm_table(config, g)) rows.push_back(row);
  return rows;
}

std::string block_prefix(const GptConfig& config, int64_t l) {
  const char* peft = config.adapter_rank > 0 ? "base_model.model." : "";
  return has_llama_names(config) ? fmt::format("{}model.layers.{}.", peft, l)
                                 : fmt::format("{}transformer.h.{}.", peft, l);
}

}  // namespace ladder
