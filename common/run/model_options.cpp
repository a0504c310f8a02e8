// What RunOptions says about the model. It is apart from files, ranks and backends, because the
// page of chapter 23 has none of these.
#include <algorithm>

#include "common/error.h"
#include "common/run/options.h"

namespace ladder {
namespace {

// These are larger than any model. check_products() looks at what they give together.
constexpr int64_t kMaxLayers = 1 << 12;
constexpr int64_t kMaxChannels = 1 << 17;
constexpr int64_t kMaxTokens = 1 << 20;  // of a sequence: math::cos takes no larger angles
constexpr int64_t kMaxVocab = 1 << 20;
constexpr int64_t kLeastVocab = 256;  // a text of bytes can have all of them

// What a rank counts in a step in an int64_t (bytes and operations) stays below this: 6 operations
// per token for each weight, and 24 bytes per token for each of its T scores in at most C heads.
// Ranks split sequences and blocks. Alternatively they split each layer, but then at most 8 of
// them; and one stage has the whole head.
void check_products(const GptConfig& gpt, int64_t batch, int64_t ranks) {
  const auto shares = static_cast<double>(std::max<int64_t>(1, ranks / 8));
  const auto B = static_cast<double>(batch), T = static_cast<double>(gpt.seq_len);
  const auto L = static_cast<double>(gpt.layers), C = static_cast<double>(gpt.channels);
  const auto V = static_cast<double>(gpt.padded_vocab);
  const auto weights =
      static_cast<double>(gpt.block_matrices() + gpt.idle_matrices());  // of a block
  if (6 * B * T * (L * (weights + 12 * C * T) / shares + 12 * C * V) >= 0x1p63)
    throw UserError(
        "--batch {} is too large with {} layers of {} channels and {} tokens on {} ranks: the "
        "operations of a step on one rank could pass 2^63; fewer of one of them are legal, or more "
        "ranks",
        batch, gpt.layers, gpt.channels, gpt.seq_len, ranks);
}

}  // namespace

void RunOptions::check_size(int64_t all_ranks) const { check_products(gpt(), batch, all_ranks); }

GptConfig RunOptions::gpt() const {
  if (found) return *found;
  GptConfig config = preset(model);
  if (config.has_experts() && !takes_experts)
    throw UserError(
        "--model {} has experts, which belong to 21_moe and 22_expert_parallel: run ch21_moe, or "
        "with more than one rank ch22_expert_parallel",
        model);
  config.seq_len = seq_len.value_or(config.seq_len);
  config.layers = layers.value_or(config.layers);
  config.heads = heads.value_or(config.heads);
  config.channels = channels.value_or(config.channels);
  config.vocab = vocab.value_or(config.vocab);
  config.padded_vocab = padded(config.vocab);
  config.tied_head = tied_head;
  // A plan is for a model that has a row for each position.
  if (plan_only) config.positions = std::max(config.positions, config.seq_len);
  require_range("--layers", config.layers, 1, kMaxLayers);
  require_range("--channels", config.channels, 1, kMaxChannels);
  require_range("--vocab", config.vocab, kLeastVocab, kMaxVocab);
  require_range("--seq-len", config.seq_len, 1, kMaxTokens);
  if (other_block)
    require_range("--heads", config.heads, 1, config.channels);
  else
    config.check();
  return config;
}

}  // namespace ladder
