#include "common/model/config.h"

#include <array>

#include "common/error.h"
#include "kernels/check.h"

namespace ladder {
namespace {

// A byte is a token of the small models.
constexpr int64_t kBytes = 256;
constexpr int64_t kGpt2Vocab = 50257;

struct Preset {
  std::string_view name;
  int64_t layers, heads, channels, seq_len, vocab;
};

// GPT-2: Radford et al. 2019, table 2. GPT-3: arXiv 2005.14165, table 2.1.
constexpr std::array kPresets = {
    Preset{"nano", 8, 8, 128, 16, kBytes},
    Preset{"tiny", 4, 4, 128, 64, kBytes},
    Preset{"small", 6, 6, 384, 256, kBytes},
    Preset{"gpt2-124m", 12, 12, 768, 1024, kGpt2Vocab},
    Preset{"gpt2-350m", 24, 16, 1024, 1024, kGpt2Vocab},
    Preset{"gpt2-774m", 36, 20, 1280, 1024, kGpt2Vocab},
    Preset{"gpt2-1558m", 48, 25, 1600, 1024, kGpt2Vocab},
    Preset{"gpt3-6.7b", 32, 32, 4096, 2048, kGpt2Vocab},
    Preset{"gpt3-13b", 40, 40, 5120, 2048, kGpt2Vocab},
    Preset{"gpt3-175b", 96, 96, 12288, 2048, kGpt2Vocab},
};

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
  if (seq_len > positions)
    throw UserError("--seq-len {} is longer than the {} positions of model {}; it may only shorten",
                    seq_len, positions, name);
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

GptConfig preset(std::string_view name) {
  for (const Preset& p : kPresets)
    if (p.name == name)
      return {.name = std::string(name),
              .layers = p.layers,
              .heads = p.heads,
              .channels = p.channels,
              .seq_len = p.seq_len,
              .positions = p.seq_len,
              .vocab = p.vocab,
              .padded_vocab = padded(p.vocab)};
  throw UserError("no model is called {}; legal are {}", name, fmt::join(preset_names(), ", "));
}

}  // namespace ladder
