#include "common/model/config.h"

#include <utility>

#include "common/error.h"
#include "kernels/check.h"
#include "kernels/tensor.h"

namespace ladder {
namespace {

// The small models take bytes as tokens.
constexpr int64_t kBytes = 256;
constexpr int64_t kGpt2Vocab = 50257;

GptConfig gpt(std::string name, int64_t layers, int64_t heads, int64_t channels, int64_t seq_len,
              int64_t vocab) {
  return {.name = std::move(name),
          .layers = layers,
          .heads = heads,
          .channels = channels,
          .seq_len = seq_len,
          .positions = seq_len,
          .vocab = vocab,
          .padded_vocab = padded(vocab)};
}

/// A model of LLaMA's kind with the sizes of `config`.
GptConfig llama(GptConfig config, int64_t kv_heads, int64_t hidden, int64_t positions,
                const Rope& rope = {}) {
  config.positions = positions;
  config.kv_heads = kv_heads;
  config.hidden = hidden;
  config.norm = Norm::Rms;
  config.mlp = Mlp::SwiGlu;
  config.position = Position::Rope;
  config.bias = false;
  config.rope = rope;
  return config;
}

GptConfig with_experts(GptConfig config, const Experts& experts) {
  config.experts = experts;
  return config;
}

const std::vector<GptConfig>& presets() {
  constexpr int64_t kLlama2Vocab = 32000, kLlama3Vocab = 128256;
  static const std::vector<GptConfig> all = {
      // GPT-2: Radford et al. 2019, table 2. GPT-3: arXiv 2005.14165, table 2.1. Chinchilla:
      // arXiv 2203.15556, table 4; it has relative positions, here it has a table of positions. The
      // matrices of relative positions are the 5 of its 70 billion parameters that are missing
      // here.
      gpt("nano", 8, 8, 128, 16, kBytes), gpt("tiny", 4, 4, 128, 64, kBytes),
      gpt("small", 6, 6, 384, 256, kBytes), gpt("gpt2-124m", 12, 12, 768, 1024, kGpt2Vocab),
      gpt("gpt2-350m", 24, 16, 1024, 1024, kGpt2Vocab),
      gpt("gpt2-774m", 36, 20, 1280, 1024, kGpt2Vocab),
      gpt("gpt2-1558m", 48, 25, 1600, 1024, kGpt2Vocab),
      gpt("gpt3-6.7b", 32, 32, 4096, 2048, kGpt2Vocab),
      gpt("gpt3-13b", 40, 40, 5120, 2048, kGpt2Vocab),
      gpt("gpt3-175b", 96, 96, 12288, 2048, kGpt2Vocab),
      gpt("chinchilla-70b", 80, 64, 8192, 2048, 32000),
      // LLaMA 2: arXiv 2307.09288. Llama 3: arXiv 2407.21783; its 405B is version 3.1, for texts of
      // 131,072 tokens. Mistral 7B: version 0.2, which has no sliding window. seq_len is the length
      // of sequences in most of their training.
      llama(gpt("llama-nano", 8, 8, 128, 16, kBytes), 4, 384, 16),
      llama(gpt("llama-tiny", 4, 4, 128, 64, kBytes), 2, 384, 64),
      llama(gpt("llama2-7b", 32, 32, 4096, 4096, kLlama2Vocab), 32, 11008, 4096),
      llama(gpt("llama2-70b", 80, 64, 8192, 4096, kLlama2Vocab), 8, 28672, 4096),
      llama(gpt("llama3-8b", 32, 32, 4096, 8192, kLlama3Vocab), 8, 14336, 8192, {.theta = 5e5}),
      llama(gpt("llama3-70b", 80, 64, 8192, 8192, kLlama3Vocab), 8, 28672, 8192, {.theta = 5e5}),
      llama(gpt("llama3-405b", 126, 128, 16384, 8192, kLlama3Vocab), 8, 53248, 131072,
            {.theta = 5e5, .factor = 8}),
      llama(gpt("mistral-7b", 32, 32, 4096, 8192, kLlama2Vocab), 8, 14336, 32768, {.theta = 1e6}),
      // In moe-tiny a token takes as many hidden channels as in llama-tiny. Mixtral 8x7B:
      // arXiv 2401.04088. The last one has the sizes of DeepSeek-V3, arXiv 2412.19437, but it is
      // not that model: its attention has plain heads, every block has experts, experts form no
      // groups, and their weights are not scaled.
      with_experts(llama(gpt("moe-nano", 4, 8, 64, 16, kBytes), 4, 64, 16),
                   {.count = 8, .chosen = 2}),
      with_experts(llama(gpt("moe-tiny", 4, 4, 128, 64, kBytes), 2, 192, 64),
                   {.count = 8, .chosen = 2}),
      with_experts(llama(gpt("mixtral-8x7b", 32, 32, 4096, 32768, kLlama2Vocab), 8, 14336, 32768,
                         {.theta = 1e6}),
                   {.count = 8, .chosen = 2}),
      with_experts(llama(gpt("like-deepseek-v3", 61, 128, 7168, 4096, 129280), 128, 2048, 4096),
                   {.count = 256, .chosen = 8, .shared = 1, .router = Router::Sigmoid})};
  return all;
}

void check_experts(const GptConfig& config) {
  const auto& [count, chosen, shared, router, renormalize] = config.experts;
  if (config.mlp != Mlp::SwiGlu || config.bias)
    throw UserError("experts are SwiGLUs without biases; legal are --mlp swiglu and --no-bias");
  if (chosen < 1 || chosen > count)
    throw UserError("--experts-per-token must be from 1 to the {} of --experts, not {}", count,
                    chosen);
  // This lets experts lie one after the other without gaps.
  if (config.channels * config.expert_inner() % kAlign != 0)
    throw UserError("--channels {} times the {} channels inside an expert must be a multiple of {}",
                    config.channels, config.expert_inner(), kAlign);
}

void require_positive(std::string_view what, int64_t value) {
  if (value < 1) throw UserError("{} must be at least 1, not {}", what, value);
}

}  // namespace

int64_t padded(int64_t vocab) { return round_up<int64_t>(vocab, 128); }

void GptConfig::check() const {
  require_positive("--layers", layers);
  require_positive("--heads", heads);
  require_positive("--channels", channels);
  require_positive("--seq-len", seq_len);
  if (channels % heads != 0)
    throw UserError("--heads {} must divide --channels {}", heads, channels);
  require_positive("key and value heads", groups());
  if (heads % groups() != 0)
    throw UserError("--heads {} must be a multiple of the {} heads of keys and values", heads,
                    groups());
  require_positive("channels of the MLP", expert_inner());
  if (has_experts()) check_experts(*this);
  if (position == Position::Rope && head_size() % 2 != 0)
    throw UserError("--heads {} of --channels {} have {} channels each, which RoPE turns in pairs",
                    heads, channels, head_size());
  if (position == Position::Learned && seq_len > positions)
    throw UserError("--seq-len {} is longer than the {} positions of model {}; it may only shorten",
                    seq_len, positions, name);
}

bool has_llama_names(const GptConfig& config) {
  return config.norm == Norm::Rms && config.mlp == Mlp::SwiGlu &&
         config.position == Position::Rope && !config.bias;
}

Family family(const GptConfig& config) {
  const Experts mixtral{.count = config.experts.count, .chosen = config.experts.chosen};
  const bool gpt2 = config.norm == Norm::Layer && config.mlp == Mlp::Gelu &&
                    config.position == Position::Learned && config.bias &&
                    config.groups() == config.heads;
  if (!has_llama_names(config) || config.experts != mixtral)
    return gpt2 ? Family::Gpt2 : Family::Mixture;
  return config.has_experts() ? Family::Mixtral : Family::Llama;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const GptConfig& config : presets()) names.push_back(config.name);
  return names;
}

GptConfig preset(std::string_view name) {
  for (const GptConfig& config : presets())
    if (config.name == name) return config;
  throw UserError("no model is called {}; legal are {}", name, fmt::join(preset_names(), ", "));
}

}  // namespace ladder
