#include "common/run/branches.h"

#include <algorithm>

#include <fmt/format.h>

namespace ladder {

const std::vector<Branch>& branches() {
  static const std::vector<Branch> all = {
      {"14_stability", {"--agc", "--spike-guard", "--bad-batch"}},
      {"15_batch_size", {"--noise-scale", "--batch-ramp"}},
      {"16_fp8", {"--precision fp8"}},
      {"17_head_chunks", {"--head-chunk"}},
      {"18_offload", {"--offload"}},
      {"19_llama",
       {"--norm", "--mlp", "--position", "--kv-heads", "--hidden", "--rope-theta", "--no-bias"}},
      {"20_context_parallel", {"--cp", "--context", "--order"}},
      {"21_moe",
       {"--experts", "--experts-per-token", "--shared-experts", "--router", "--no-renormalize",
        "--capacity", "--balance-loss", "--z-loss", "--bias-rate"}},
      {"22_expert_parallel", {"--ep"}},
      {"26_packing",
       {"--documents", "--end-of-text", "--pack", "--unpacked", "--pack-window", "--row-documents",
        "--chunk-length"}},
      {"27_data_order", {"--sources", "--epochs", "--new-weights", "--eval-targets"}},
      {"28_async_checkpoint", {"--async"}},
      {"29_monitor",
       {"--events", "--event-clock", "--peak-tflops", "--watch-every", "--alarms",
        "--alarm-deviations", "--rewind", "--skip-batches", "--plant"}},
      {"30_hsdp", {"--replicas"}},
      {"32_optimizers",
       {"--optimizer lion", "--optimizer adamw8bit", "--optimizer adafactor", "--optimizer muon",
        "--muon-lr", "--muon-momentum", "--adjust-lr", "--newton-schulz"}},
      {"34_scaling", {"--mup", "--coordinates"}},
      {"36_finetune",
       {"--base", "--template", "--learn", "--lora-rank", "--lora-alpha", "--lora-rslora",
        "--save-merged", "--chat"}},
      {"37_rl",
       {"--loss", "--beta", "--group", "--draw-temperature", "--advantage", "--updates",
        "--clip-low", "--clip-high", "--kl", "--rollouts", "--role", "--places"}}};
  return all;
}

std::string branch_of(const std::string& words) {
  for (const auto& [chapter, adds] : branches())
    if (std::ranges::count(adds, words) > 0)
      return fmt::format("{} belongs to {}: run ch{}", words, chapter, chapter);
  return "";
}

}  // namespace ladder
