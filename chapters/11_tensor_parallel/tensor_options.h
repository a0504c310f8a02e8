// Options of chapter 11, and the degrees that are legal.
#pragma once

#include <bit>
#include <cstdint>

#include "common/error.h"
#include "common/model/activations.h"
#include "common/model/config.h"
#include "common/run/command_line.h"
#include "kernels/context.h"
#include "kernels/limbs.h"

namespace ladder {

struct TensorParallelOptions {
  int tp = 0;
  bool sequence_parallel = false;

  void add_to(CommandLine& line) {
    line.group("11_tensor_parallel");
    line.add("--tp", tp,
             "ranks that split each layer: 1, 2, 4 or 8; 0: all, or 1 if there are other axes");
    line.add("--sequence-parallel", sequence_parallel,
             "ranks also split what lies between the layers, by positions of each sequence");
  }

  /// Checks what can be checked before a rank starts. degree() knows the model and checks more.
  void check() const {
    if (tp < 0 || tp > kLeaves) throw UserError("--tp {}: legal are 1, 2, 4, 8, and 0", tp);
  }

  /// Ranks that split each layer, of `ranks` in all.
  /// @throws UserError if they cannot, naming what is legal
  int64_t degree(const GptConfig& gpt, int64_t ranks) const {
    const int64_t t = tp == 0 ? ranks : tp;
    if (t < 1 || t > kLeaves || !std::has_single_bit(static_cast<uint64_t>(t)) || !legal(gpt, t))
      throw UserError(
          "--tp {}: it must be 1, 2, 4 or 8 (sums have {} leaves), divide {} heads{}, and divide "
          "{} "
          "channels into multiples of {}; legal are {}",
          t, kLeaves, gpt.groups(), gpt.groups() < gpt.heads ? " of keys and values" : "",
          gpt.channels, kNormLeaf,
          legal_degrees(kLeaves, [&](int64_t d) { return legal(gpt, d); }));
    if (t != ranks)
      throw UserError(
          "--tp {} with {} ranks: all of them split each layer; legal are --tp {}, or 0", t, ranks,
          ranks);
    return t;
  }

  /// How many of the t ranks that split each layer also split each sequence: all of them, or 1.
  /// @throws UserError that names what is legal, if they cannot
  int64_t sequence_ranks(const GptConfig& gpt, int64_t t) const {
    if (!sequence_parallel) return 1;
    const auto even = [&](int64_t d) { return legal(gpt, d) && gpt.seq_len % d == 0; };
    if (!even(t))
      throw UserError(
          "--sequence-parallel: --tp {} must divide {} tokens of a sequence; legal are {}, or no "
          "--sequence-parallel",
          t, gpt.seq_len, legal_degrees(kLeaves, even));
    return t;
  }

  /// The part of plan `all` that one of t ranks has. @throws UserError as sequence_ranks() does
  ActivationPlan plan(ActivationPlan all, const GptConfig& gpt, int64_t t) const {
    all.tp = t;
    all.sequence_ranks = sequence_ranks(gpt, t);
    return all;
  }

 private:
  static bool legal(const GptConfig& gpt, int64_t t) {
    return t == 1 || (gpt.groups() % t == 0 && gpt.channels % (kNormLeaf * t) == 0 &&
                      gpt.inner() % (kNormLeaf * t) == 0 && gpt.padded_vocab % t == 0);
  }
};

}  // namespace ladder
