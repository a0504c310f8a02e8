#include "tests/common/ranks.h"

#include <algorithm>

#include <fmt/format.h>

namespace ladder::test {

namespace {

const std::vector<std::string> kShardedFaults = {
    "skip:all_gather:1",     "swap:all_gather:2",      "skip:all_reduce:0",
    "skip:reduce_scatter:0", "twice:reduce_scatter:1", "swap:reduce_scatter:2",
    "skip:reduce_scatter:6", "skip:all_gather:6",      "swap:all_gather:5"};

}  // namespace

const std::vector<DataParallel>& data_parallel() {
  // A bucket of the default size holds all of nano: smaller ones, so that there are several.
  static const std::vector<DataParallel> rows = {
      {.chapter = "07_ddp",
       .ways = {"--ddp naive", "--ddp bucketed --bucket-mb 0", "--ddp bucketed --bucket-mb 1.5",
                "--ddp overlapped --bucket-mb 0", "--ddp overlapped --bucket-mb 1.5",
                "--reduction tree --bucket-mb 1"},
       // Number 0 counts targets.
       .faults = {"skip:broadcast:0", "swap:broadcast:0", "skip:all_reduce:0", "skip:all_reduce:1",
                  "twice:all_reduce:1", "swap:all_reduce:1", "skip:all_reduce:3"},
       .sums = "all_reduce:1",
       .losses = "all_gather:0"},
      // Four sections of weights are gathered before the first step.
      {.chapter = "08_zero1",
       .ways = {"--ddp naive", "--ddp bucketed", "--ddp overlapped --bucket-mb 0",
                "--ddp overlapped --bucket-mb 1.5", "--reduction tree --bucket-mb 1"},
       .faults = kShardedFaults,
       .sums = "reduce_scatter:0",
       .losses = "all_gather:4",
       .sharded = true,
       .gathers_after_update = true},
      {.chapter = "09_zero2",
       .ways = {"--ddp naive", "--ddp bucketed", "--ddp overlapped", "--reduction tree"},
       .faults = kShardedFaults,
       .sums = "reduce_scatter:0",
       .losses = "all_gather:4",
       .sharded = true,
       .gathers_after_update = true,
       .each_micro_step = true},
      // Each micro-step gathers five sections: block 0 in backward, too.
      {.chapter = "10_zero3",
       .ways = {"--ddp naive", "--ddp bucketed", "--ddp overlapped --prefetch 0",
                "--reshard-after-forward 0", "--reduction tree"},
       .faults = {"skip:all_gather:1", "swap:all_gather:2", "skip:all_gather:3",
                  "skip:all_gather:4", "skip:all_reduce:0", "skip:reduce_scatter:0",
                  "twice:reduce_scatter:1", "swap:reduce_scatter:2", "skip:reduce_scatter:6"},
       .sums = "reduce_scatter:0",
       .losses = "all_gather:5",
       .sharded = true,
       .each_micro_step = true},
      // As 10, within each group of neighbors.
      {.chapter = "30_hsdp",
       .ways = {"--replicas 2", "--replicas 2 --ddp bucketed --prefetch 0",
                "--replicas 2 --reduction tree"},
       .faults = {"skip:all_gather:1", "swap:all_gather:2", "skip:all_reduce:0",
                  "skip:reduce_scatter:0", "twice:reduce_scatter:1", "swap:reduce_scatter:2"},
       .sums = "reduce_scatter:0",
       .losses = "all_gather:5",
       .sharded = true,
       .each_micro_step = true},
      // As 10, and what waits in files changes no bit, byte of memory or message.
      {.chapter = "18_offload",
       .ways = {"--offload optimizer", "--offload optimizer,weights --reduction tree",
                "--recompute full --offload inputs,weights --prefetch 0"},
       .faults = {"skip:all_gather:1", "swap:all_gather:2", "skip:all_gather:3",
                  "skip:all_reduce:0", "skip:reduce_scatter:0", "twice:reduce_scatter:1",
                  "swap:reduce_scatter:2"},
       .sums = "reduce_scatter:0",
       .losses = "all_gather:5",
       .sharded = true,
       .each_micro_step = true},
  };
  return rows;
}

std::string flags_under_mpirun(Cut cut, int batch) {
  return fmt::format(" --batch {} --micro-batch {}", batch, batch / cut.ranks / cut.GA);
}

std::string flags_of(Cut cut, int batch) {
  return flags_under_mpirun(cut, batch) + fmt::format(" --ranks {}", cut.ranks);
}

const std::vector<Tier>& tiers() {
  // `ref` is the specification, not the fast one.
  static const std::string ref = "--backend ref --layers 2 --channels 32 --heads 4 --seq-len 7 ";
  static const std::vector<Tier> all = {
      {.name = "cpu_fp32", .flags = "--backend cpu --precision fp32 "},
      {.name = "cpu_bf16", .flags = "--backend cpu --precision bf16 "},
      {.name = "ref_fp32", .flags = ref + "--precision fp32 "},
      {.name = "ref_bf16", .flags = ref + "--precision bf16 "},
  };
  return all;
}

size_t SameTraceRanks::tier_index() {
  const auto& all = tiers();
  const auto at = std::find_if(all.begin(), all.end(),
                               [](const Tier& other) { return other.name == tier().name; });
  return static_cast<size_t>(at - all.begin());
}

}  // namespace ladder::test
