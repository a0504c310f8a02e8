// --offload: keeps in files what a rank does not use for most of a step (Rajbhandari et al.,
// "ZeRO-Infinity", arXiv 2104.07857).
//
//   inputs      the inputs of segments that --recompute keeps (offload_file.h); none where the
//               policy computes no block again
//   optimizer   optimizer states, and the FP32 master of 16-bit weights
//   weights     the weights themselves, from which sections are gathered
//
// The files of `optimizer` and `weights` are mapped into memory. Kernels read and write them like
// any tensor, and the operating system brings a page when a kernel touches it. After each step the
// program gives all pages back. So a step that updates moves each page in once and out once. Bytes
// per parameter of the shard that AdamW's step moves:
//
//               FP32              16 bits with a master
//   optimizer   2 (4 + 4) = 16    2 (4 + 4 + 4) = 24
//   weights     2 4       =  8    2 2           =  4
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/18_offload/offload_file.h"
#include "common/error.h"
#include "common/run/backend.h"
#include "common/run/command_line.h"
#include "common/run/log.h"
#include "common/run/options.h"
#include "kernels/arena.h"

namespace ladder {

enum class Offload : uint8_t { Inputs, Optimizer, Weights };
constexpr auto names_of(Offload) { return std::array{"inputs", "optimizer", "weights"}; }

struct OffloadOptions {
  std::vector<Offload> what;

  void add_to(CommandLine& line) {
    line.group("18_offload");
    line.add("--offload", what,
             "to files, any of: inputs (which --recompute keeps), optimizer (states and master "
             "weights), weights");
  }

  /// @throws UserError if the backend cannot do this
  void check(const RunOptions& run) const {
    const bool maps = has(Offload::Optimizer) || has(Offload::Weights);
    if (maps && on_device(run.backend))
      throw UserError(
          "--offload {} maps files where kernels of --backend {} cannot read them; legal are ref "
          "and cpu, or inputs alone",
          has(Offload::Weights) ? "weights" : "optimizer", run.backend);
  }

  bool has(Offload one) const { return std::ranges::find(what, one) != what.end(); }
  bool has(Mem mem) const {
    if (mem == Mem::Optim || mem == Mem::Master) return has(Offload::Optimizer);
    return mem == Mem::Param && has(Offload::Weights);
  }

  /// `base` with two buffers for all inputs, if inputs wait in the file.
  ActivationPlan plan(ActivationPlan base) const {
    base.own_input = base.own_output = !has(Offload::Inputs);
    return base;
  }
  /// Which inputs OffloadFile needs.
  std::vector<bool> inputs_of(const Recompute& recompute, int64_t layers) const {
    return has(Offload::Inputs) ? inputs_needed(recompute, layers) : std::vector<bool>{};
  }
  /// Bytes that a step moves to the file and back.
  /// @param batch this rank's sequences in a step
  int64_t input_bytes(const GptConfig& gpt, const Recompute& recompute, const ActivationPlan& acts,
                      int64_t batch) const {
    const std::vector<bool> needed = inputs_of(recompute, gpt.layers);
    const int64_t inputs = std::ranges::count(needed, true);
    return 2 * inputs * batch * gpt.seq_len * gpt.channels * size_of(acts.dtype);
  }
  /// The part of a plan that stays in memory.
  MemoryBytes left(MemoryBytes bytes) const {
    for (int i = 0; i < kMemCount; ++i)
      if (const Mem mem = static_cast<Mem>(i); has(mem)) bytes[mem] = 0;
    return bytes;
  }
};

/// Puts the chosen categories of an arena into files, and counts the bytes that move.
class OffloadedStates {
 public:
  OffloadedStates(Arena& arena, const OffloadOptions& options) : arena_(arena) {
    for (int i = 0; i < kMemCount; ++i)
      if (const Mem mem = static_cast<Mem>(i); options.has(mem)) arena.offload(mem);
  }

  /// Called after the weights have changed. Gives all pages back.
  void end_step() { moved_ = 2 * arena_.drop_offloaded(); }

  /// Bytes in the files.
  int64_t bytes() const { return arena_.offloaded(); }
  /// Bytes that the last step moved in and out: every page once each way. It counts the pages that
  /// were given back, and assumes that each of them also came in.
  int64_t moved() const { return moved_; }

 private:
  Arena& arena_;
  int64_t moved_ = 0;
};

/// Reports what the last step moved; 0 if there was no step. Nothing is predicted of the pages of a
/// skipped step: it does not touch all of them.
inline void report_offload(Log& log, const OffloadedStates& states, const OffloadFile& inputs,
                           int64_t predicted_inputs) {
  const bool none = log.steps() == 0;
  nlohmann::json pages = none ? 0 : 2 * states.bytes();
  if (log.last_step_skipped()) pages = nullptr;
  log.extra()["offload"] = {
      {"bytes", states.bytes()},
      {"moved", {{"predicted", pages}, {"measured", states.moved()}}},
      {"inputs", {{"predicted", none ? 0 : predicted_inputs}, {"measured", inputs.moved()}}}};
}

}  // namespace ladder
