#include "common/run/branches.h"

#include <array>

#include <fmt/format.h>

namespace ladder {
namespace {

constexpr std::array kBranchFlags = {
    BranchFlag{"--agc", "", "14_stability"},
    BranchFlag{"--spike-guard", "", "14_stability"},
    BranchFlag{"--bad-batch", "", "14_stability"},
    BranchFlag{"--noise-scale", "", "15_batch_size"},
    BranchFlag{"--batch-ramp", "", "15_batch_size"},
    BranchFlag{"--precision", "fp8", "16_fp8"},
    BranchFlag{"--head-chunk", "", "17_head_chunks"},
    BranchFlag{"--offload", "", "18_offload"},
    BranchFlag{"--norm", "", "19_llama"},
    BranchFlag{"--mlp", "", "19_llama"},
    BranchFlag{"--position", "", "19_llama"},
    BranchFlag{"--kv-heads", "", "19_llama"},
    BranchFlag{"--hidden", "", "19_llama"},
    BranchFlag{"--rope-theta", "", "19_llama"},
    BranchFlag{"--no-bias", "", "19_llama"},
    BranchFlag{"--cp", "", "20_context_parallel"},
    BranchFlag{"--context", "", "20_context_parallel"},
    BranchFlag{"--order", "", "20_context_parallel"},
    BranchFlag{"--experts", "", "21_moe"},
    BranchFlag{"--experts-per-token", "", "21_moe"},
    BranchFlag{"--shared-experts", "", "21_moe"},
    BranchFlag{"--router", "", "21_moe"},
    BranchFlag{"--no-renormalize", "", "21_moe"},
    BranchFlag{"--capacity", "", "21_moe"},
    BranchFlag{"--balance-loss", "", "21_moe"},
    BranchFlag{"--z-loss", "", "21_moe"},
    BranchFlag{"--bias-rate", "", "21_moe"},
    BranchFlag{"--ep", "", "22_expert_parallel"},
    BranchFlag{"--documents", "", "26_packing"},
    BranchFlag{"--end-of-text", "", "26_packing"},
    BranchFlag{"--pack", "", "26_packing"},
    BranchFlag{"--unpacked", "", "26_packing"},
    BranchFlag{"--pack-window", "", "26_packing"},
    BranchFlag{"--row-documents", "", "26_packing"},
    BranchFlag{"--sources", "", "27_data_order"},
    BranchFlag{"--epochs", "", "27_data_order"},
    BranchFlag{"--async", "", "28_async_checkpoint"},
    BranchFlag{"--events", "", "29_monitor"},
    BranchFlag{"--event-clock", "", "29_monitor"},
    BranchFlag{"--peak-tflops", "", "29_monitor"},
    BranchFlag{"--watch-every", "", "29_monitor"},
    BranchFlag{"--alarms", "", "29_monitor"},
    BranchFlag{"--alarm-deviations", "", "29_monitor"},
    BranchFlag{"--rewind", "", "29_monitor"},
    BranchFlag{"--skip-batches", "", "29_monitor"},
    BranchFlag{"--plant", "", "29_monitor"},
    BranchFlag{"--replicas", "", "30_hsdp"},
};

}  // namespace

std::span<const BranchFlag> branch_flags() { return kBranchFlags; }

std::string branch_of(std::string_view flag, std::string_view value) {
  for (const BranchFlag& added : kBranchFlags)
    if (added.flag == flag && added.value == value)
      return fmt::format("{}{}{} belongs to {}: run ch{}", flag, value.empty() ? "" : " ", value,
                         added.chapter, added.chapter);
  return "";
}

}  // namespace ladder
