// What this machine can do at most, measured by itself: the two ceilings of a roofline
// (Williams, Waterman and Patterson 2009, doi 10.1145/1498765.1498785).
#pragma once

#include "bench/bench.h"

namespace ladder::bench {

/// All in thousand millions a second, on all threads of the Ctx; each the best of several tries.
///
/// Three numbers for arithmetic. `fma` is what the roofline of an operation is drawn with: fused
/// multiply-adds on registers, no memory. Our own product would not be an honest ceiling, being
/// one of the operations that are judged: a slow one would lower the bar for all. `gemm` says how
/// much of it a whole product of friendly shape reaches, and so what a training step can hope for;
/// `gemm_bf16` says the same of factors of 16 bits.
///
/// Three numbers for memory, of arrays far beyond the caches. Two are of copies. Bytes read and
/// bytes written are counted, so copying one byte counts as two. `copy_plain` stores as every
/// kernel does: the processor first reads the line that it then overwrites, and these reads are
/// not counted. `copy` is the better of that and of stores past the cache (movnt), which save the
/// read: every byte on the bus is one that is counted. It is the ceiling, for half reads and half
/// writes. An operation that fills a new array with plain stores moves 3 bytes for each 2 counted
/// and ends near copy_plain; one in place, such as adamw_update, reads what it overwrites anyway
/// and can reach `copy`, or a little more where it reads more than it writes. `read` is of reading
/// alone, into a few sums: the most that a sum over tokens or a norm can reach, which store next to
/// nothing. It may be below `copy`, as a core can have only so many reads under way. A large last
/// cache may hold a part of an array of 128 MiB: what is read from more memory is held to
/// read_rate().
struct Ceilings {
  double fma;
  double gemm;
  double gemm_bf16;
  double copy_plain;
  double copy;
  double read;
};

/// Takes a few seconds and 256 MiB.
Ceilings measure_ceilings(int threads);

/// As `read`, of an array of so many MiB, such as the weights of a model.
double read_rate(int threads, int64_t mebibytes);

/// Two arrays, of 128 MiB if not said otherwise, and how fast all threads of a Ctx go through them.
/// Where others use the same memory that changes from second to second, so what is compared with it
/// takes turns with it.
class Memory {
 public:
  enum class Use : uint8_t { CopyPlain, CopyPastCaches, Read };
  explicit Memory(Bench& box, int64_t floats = 32 << 20);
  /// Of one pass, in thousand million bytes a second.
  double rate(Use use) const;

 private:
  const Ctx& ctx_;
  Tensor from_, to_;  ///< (floats)
};

/// Least seconds for a cost: by the slower of arithmetic and memory.
inline double ideal_seconds(const Ceilings& c, Cost cost) {
  return 1e-9 * std::max(static_cast<double>(cost.flops) / c.fma,
                         static_cast<double>(cost.bytes) / c.copy);
}

/// How fast a training step of GPT-2 124M could be on this machine, at most.
/// Seconds of the operations of one step (AdamW) of B sequences of T tokens, each by its roofline,
/// one after the other. Arithmetic is held to the measured product (`gemm`; with 16 bits, those of
/// products and attention to `gemm_bf16`), not to bare multiply-adds: what is asked is how well the
/// parts are put together. Every pass over activations is charged to memory, also where they would
/// fit a cache.
/// @param compute F32 as in chapter 04; BF16 as in chapter 05: activations and weights of 16 bits,
///                which are cast from the FP32 weights once a step, gradients of weights of 32
double step_floor_seconds(const Ceilings& ceilings, int64_t B, int64_t T, Dtype compute);

}  // namespace ladder::bench
