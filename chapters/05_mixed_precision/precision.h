// --precision: the formats in which the model computes, and in which it learns.
//
//            Param         Master   Grad   Optim (AdamW)   activations
//   fp32     4 (F32)       -        4      8               F32
//   bf16     2 (BF16)      4        4      8               BF16
//   fp16     2 (F16)       4        4      8               F16, loss scaled (loss_scaler.h)
//
// Forward and backward read 16-bit weights. Gradients, optimizer states and the weights that the
// optimizer updates stay FP32 (arXiv 1710.03740). An update is often smaller than half the distance
// to the next 16-bit weight. Without the FP32 master, rounding would remove it. `--master 16` shows
// this.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/model/activations.h"
#include "common/run/command_line.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/narrow.h"

namespace ladder {

struct PrecisionOptions {
  std::string name = "fp32";
  int master_bits = 32;

  void add_to(CommandLine& line) {
    add_to(line, "fp32, bf16 or fp16 (loss scaled)", {"fp32", "bf16", "fp16"});
  }

  /// @throws UserError
  void check() const {
    if (master_bits == 16 && !narrow())
      throw UserError("--master 16 takes every --precision but fp32");
  }

  bool narrow() const { return dtype() != Dtype::F32; }
  /// The dtype of activations, of their gradients and of the weights that forward reads.
  Dtype dtype() const {
    if (name == "fp32") return Dtype::F32;
    return name == "fp16" ? Dtype::F16 : Dtype::BF16;
  }
  /// The activations of this precision.
  ActivationPlan plan() const { return {.dtype = dtype()}; }

 protected:
  /// For options that know more precisions (chapter 16).
  /// @param legal what --precision takes
  void add_to(CommandLine& line, const char* help, const std::vector<std::string>& legal) {
    line.group("05_mixed_precision");
    line.add("--precision", name, help, {.legal = legal});
    line.add("--master", master_bits,
             "an experiment: 16 rounds the weights after each update, as if there were no FP32 "
             "master",
             {.legal = {"32", "16"}});
  }
};

/// Whether scaling changes only the exponent of a number, and none of its digits.
inline bool is_power_of_two(double scale) {
  int exponent = 0;
  return std::frexp(scale, &exponent) == 0.5;
}

/// Two copies of the weights: the F32 copy that learns, and the copy that forward and backward
/// read. In FP32 both are one buffer.
struct Weights {
  Tensor master;   ///< F32 flat
  Tensor compute;  ///< PrecisionOptions::dtype() flat
  bool round_master = false;

  Weights(Arena& arena, int64_t size, const PrecisionOptions& options)
      : master(
            arena.alloc(options.narrow() ? Mem::Master : Mem::Param, "master", Dtype::F32, {size})),
        compute(options.narrow() ? arena.alloc(Mem::Param, "params", options.dtype(), {size})
                                 : master),
        round_master(options.master_bits == 16) {}

  /// Call it after the master has changed. Rounds the master for forward and backward.
  void refresh(const Ctx& ctx) const {
    if (compute.ptr == master.ptr) return;
    const Span span(ctx, "refresh_weights");
    ctx.kernels->cast(ctx, compute, master);
    if (round_master) ctx.kernels->cast(ctx, master, compute);
  }

  static int64_t param_bytes(int64_t size, const PrecisionOptions& options) {
    return size * size_of(options.dtype());
  }
  static int64_t master_bytes(int64_t size, const PrecisionOptions& options) {
    return options.narrow() ? 4 * size : 0;
  }
};

}  // namespace ladder
