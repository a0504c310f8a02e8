// --offload: what a rank holds of the model waits in files while it is not in use (Rajbhandari et
// al., "ZeRO-Infinity", arXiv 2104.07857).
//
//   optimizer   states of the optimizer, and the FP32 master of 16-bit weights
//   all         also the weights themselves, from which sections are gathered
//
// The files are mapped into memory: kernels read and write them as any tensor, and the machine
// moves pages as they are touched. After each step all pages are given back, so a step moves each
// of them in once and out once. For AdamW that is, in bytes a parameter of the shard:
//
//               FP32                 16 bits with a master
//   optimizer   2 (4 + 4)     = 16   2 (4 + 4 + 4)     = 24
//   all         2 (4 + 4 + 4) = 24   2 (4 + 4 + 4 + 2) = 28
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/run/backend.h"
#include "common/run/command_line.h"
#include "common/run/options.h"
#include "kernels/arena.h"
#include "kernels/mapped_file.h"

namespace ladder {

struct OffloadOptions {
  std::string what = "none";

  void add_to(CommandLine& line) {
    line.group("10_zero3");
    line.add("--offload", what, "none, optimizer (states and master weights) or all, to files",
             {.legal = {"none", "optimizer", "all"}});
  }

  /// @throws UserError if the backend cannot
  void check(const RunOptions& run) const {
    if (what != "none" && on_device(run.backend))
      throw UserError(
          "--offload {} maps files where kernels of --backend {} cannot read them; legal are ref "
          "and cpu",
          what, run.backend);
  }

  bool offloads(Mem mem) const {
    if (mem == Mem::Optim || mem == Mem::Master) return what != "none";
    return mem == Mem::Param && what == "all";
  }
};

/// Moves the chosen categories of an arena to files, and counts what comes and goes.
class OffloadedStates {
 public:
  OffloadedStates(Arena& arena, const OffloadOptions& options) : arena_(arena) {
    for (int i = 0; i < kMemCount; ++i)
      if (const Mem mem = static_cast<Mem>(i); options.offloads(mem)) arena.offload(mem);
  }

  /// What of a plan stays in memory.
  static MemoryBytes left(MemoryBytes bytes, const OffloadOptions& options) {
    for (int i = 0; i < kMemCount; ++i)
      if (const Mem mem = static_cast<Mem>(i); options.offloads(mem)) bytes[mem] = 0;
    return bytes;
  }

  /// After the weights have changed: gives all pages back.
  void end_step() { moved_ = 2 * arena_.drop_offloaded(); }

  /// Bytes in the files, and what the last step moved in and out: every page once. Measured are the
  /// pages that were given back; that each came in, too, is not seen.
  void report(nlohmann::json& extra) const {
    extra["offload"] = {{"bytes", arena_.offloaded()},
                        {"moved", {{"predicted", 2 * arena_.offloaded()}, {"measured", moved_}}}};
  }

 private:
  Arena& arena_;
  int64_t moved_ = 0;
};

}  // namespace ladder
