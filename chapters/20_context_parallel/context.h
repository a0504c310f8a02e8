// Context parallelism: ranks split the tokens of each sequence. This header has the options, the
// tokens of each rank, and what the three ways to do attention have in common.
//
// A sequence is cut into 2 cp equal runs of neighboring tokens. In zig-zag order rank c has the
// runs c and 2 cp - 1 - c. With 4 ranks:
//
//     run       0   1   2   3   4   5   6   7
//     rank      0   1   2   3   3   2   1   0
//
// A late token attends to many keys, an early token to few. In zig-zag order all ranks have the
// same number of pairs of a query and a key, T (T + 1) / (2 cp). In contiguous order rank c has the
// runs 2c and 2c + 1, and the last rank has nearly twice the mean number of pairs.
//
// Together, the two runs of a rank are whole leaves of the sums over tokens
// (kernels/token_leaves.h). So the sum of a rank is a subtree, and a sum over ranks is the rest of
// the tree. In contiguous order the two runs are not whole leaves. Sums over tokens then have other
// bits, but the output of attention has the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "common/comm/mesh.h"
#include "common/error.h"
#include "common/model/activations.h"
#include "common/model/config.h"
#include "common/model/parts.h"
#include "common/model/rope.h"
#include "common/run/command_line.h"
#include "common/run/log.h"
#include "kernels/cost.h"
#include "kernels/token_leaves.h"

namespace ladder {

/// How a query meets the keys that other ranks have.
enum class ContextWay : uint8_t { Gather, Ulysses, Ring };
constexpr auto names_of(ContextWay) { return std::array{"gather", "ulysses", "ring"}; }

enum class TokenOrder : uint8_t { Zigzag, Contiguous };
constexpr auto names_of(TokenOrder) { return std::array{"zigzag", "contiguous"}; }

/// Which tokens of every sequence rank `rank` of cp has.
struct LocalTokens {
  int64_t T = 0;
  int64_t cp = 1, rank = 0;
  TokenOrder order = TokenOrder::Zigzag;

  int64_t size() const { return div_exact(T, cp); }
  /// Which two of the 2 cp runs rank `who` has: an early one and a late one.
  std::array<int64_t, 2> runs_of(int64_t who) const {
    if (order == TokenOrder::Contiguous) return {2 * who, 2 * who + 1};
    return {who, 2 * cp - 1 - who};
  }
  /// The tokens of run i. (leaf(i, n, K) is part i of n of a range; no sum is meant here.)
  Range run(int64_t i) const { return leaf(i, 2 * cp, T); }
  /// The tokens of this rank's early (0) or late (1) run. rows(): the rank's rows that hold them,
  /// the early run first. With 8 tokens on 2 ranks, rank 1 has tokens [2,4) and [4,6) in rows [0,2)
  /// and [2,4); rank 0 has tokens [0,2) and [6,8).
  Range tokens(int i) const { return run(runs_of(rank)[static_cast<size_t>(i)]); }
  Range rows(int i) const {
    const int64_t first = tokens(0).size();
    return i == 0 ? Range{0, first} : Range{first, first + tokens(1).size()};
  }
  /// The place of a piece: this rank's queries, and keys from `first` on. By these positions the
  /// kernel masks: a query attends to keys up to its own token (causal attention).
  AttentionPositions place(int64_t first) const {
    return {T, {tokens(0).begin, tokens(1).begin}, first};
  }
  /// The number of pairs of a query of this rank and one of `keys` that it sees, in one head.
  /// `keys` are tokens of the whole sequence.
  int64_t pairs(Range keys) const {
    int64_t sum = 0;
    for (const int i : {0, 1})
      for (int64_t t = tokens(i).begin; t < tokens(i).end; ++t)
        sum += std::clamp<int64_t>(t + 1 - keys.begin, 0, keys.size());
    return sum;
  }
};

/// What attention needs to know of the model, of the ranks and of the dtype.
struct ContextShape {
  LocalTokens own;
  int64_t NH, NKV, HS;
  Dtype dtype;

  /// @param tp ranks that split the heads (chapter 33)
  ContextShape(const LocalTokens& tokens, const GptConfig& gpt, Dtype dtype_, int64_t tp = 1)
      : own(tokens),
        NH(div_exact(gpt.heads, tp)),
        NKV(div_exact(gpt.groups(), tp)),
        HS(gpt.head_size()),
        dtype(dtype_) {}

  /// Columns of a token: its queries, its keys and values, or both.
  int64_t q() const { return NH * HS; }
  int64_t kv() const { return 2 * NKV * HS; }
  int64_t qkv() const { return q() + kv(); }
};

struct ContextOptions {
  static constexpr int kMost = kTokenChunks / 2;  ///< ranks that split a sequence

  int cp = 1;
  ContextWay way = ContextWay::Gather;
  TokenOrder order = TokenOrder::Zigzag;

  void add_to(CommandLine& line) {
    line.group("20_context_parallel");
    line.add("--cp", cp, "ranks that split each sequence: 1, 2, 4 or 8");
    line.add("--context", way,
             "gather (keys of all ranks), ulysses (heads for tokens), or ring (keys go around)");
    line.add("--order", order,
             "who has which tokens: zigzag (each rank as much work), or contiguous (ring only, to "
             "compare: the last rank has nearly twice the mean)");
  }

  /// Checks what can be checked before a rank starts. degree() knows the model and checks more.
  void check() const {
    if (cp < 1 || cp > kMost) throw UserError("--cp {}: legal are 1, 2, 4, 8", cp);
    if (order == TokenOrder::Contiguous && way != ContextWay::Ring)
      throw UserError("--order contiguous with --context {}; legal is --context ring",
                      to_string(way));
  }

  /// Ranks that split each sequence.
  /// @param tp ranks that split the heads
  /// @throws UserError if they cannot split sequences in this way, naming what is legal
  int64_t degree(const GptConfig& gpt, int64_t tp = 1) const {
    const auto cuts = [&](int64_t n) { return cut_tokens(gpt, n); };
    if (!cuts(cp))
      throw UserError(
          "--cp {}: it must be 1, 2, 4 or 8, at most {} (the leaves of a sum over {} tokens), and "
          "2 cp must divide the tokens; legal are {}",
          cp, leaves(gpt), gpt.seq_len, legal_degrees(kMost, cuts));
    const int64_t groups = gpt.groups() / tp;
    const auto heads = [&](int64_t n) {
      return cuts(n) && (way != ContextWay::Ulysses || groups % n == 0);
    };
    if (!heads(cp))
      throw UserError(
          "--context ulysses: --cp {} must divide {} heads of keys and values{}; legal are {}, or "
          "--context gather or ring",
          cp, groups, tp > 1 ? " on each tensor rank" : "", legal_degrees(kMost, heads));
    return cp;
  }
  /// cp x dp ranks.
  /// @throws UserError as degree() does, or if cp does not divide the ranks
  MeshShape mesh(const GptConfig& gpt, int ranks) const {
    degree(gpt);
    const auto both = [&](int64_t n) { return cut_tokens(gpt, n) && ranks % n == 0; };
    if (ranks % cp != 0)
      throw UserError("--cp {} with {} ranks; legal are multiples of {} ranks, or --cp {}", cp,
                      ranks, cp, legal_degrees(kMost, both));
    return {{Axis::Context, cp}, {Axis::Data, ranks / cp}};
  }
  LocalTokens local_tokens(const GptConfig& gpt, const MeshShape& mesh, int rank) const {
    return {gpt.seq_len, cp, mesh.coordinate(rank)[Axis::Context], order};
  }

  /// How many sequences a micro-batch has. If ranks split sequences it must be one, because the sum
  /// of a sequence must be complete before sequences are added. @throws UserError if it is not one
  int64_t micro(int64_t sequences) const {
    if (cp > 1 && sequences > 1)
      throw UserError("--cp {}: ranks split one sequence at a time; legal is --micro-batch 1", cp);
    return sequences;
  }

 private:
  static int64_t leaves(const GptConfig& gpt) { return matrix_leaves(kTokenChunks, gpt.seq_len); }
  /// Whether n ranks can split the tokens of a sequence.
  static bool cut_tokens(const GptConfig& gpt, int64_t n) {
    return n == 1 || (leaves(gpt) % n == 0 && gpt.seq_len % (2 * n) == 0);
  }
};

/// The model as one of cp ranks sees it: with T / cp tokens per sequence. It is for sizes
/// alone; positions and attention take the whole model's config.
inline GptConfig local_part(GptConfig gpt, int64_t cp) {
  gpt.seq_len = div_exact(gpt.seq_len, cp);
  return gpt;
}

/// Rotary positions of the rank's own tokens. angles (T/cp,HS), or null
inline void fill_own_angles(const Arena& arena, Tensor angles, const Rope& rope,
                            const LocalTokens& tokens) {
  if (!angles) return;
  for (const int i : {0, 1})
    fill_angles(arena, angles.slice(tokens.rows(i).begin, tokens.rows(i).size()), rope,
                tokens.tokens(i).begin);
}

/// Activations of that model, with these positions.
inline Activations alloc_local_activations(Arena& arena, const GptConfig& own,
                                           const LocalTokens& tokens, int64_t micro,
                                           const ActivationPlan& plan) {
  Activations acts = alloc_activations(arena, own, micro, plan);
  fill_own_angles(arena, acts.blocks[0].attn.angles, own.rope, tokens);  // all blocks share them
  return acts;
}

/// Bytes that a rank sends for attention of one layer and one sequence, in forward and in backward.
struct ContextTraffic {
  int64_t forward, backward;
};

/// Attention over sequences that ranks split. It replaces attend_forward() and
/// attend_backward_input().
class SharedAttention {
 public:
  explicit SharedAttention(const ContextShape& shape) : s(shape) {}
  SharedAttention(const SharedAttention&) = delete;
  SharedAttention& operator=(const SharedAttention&) = delete;
  virtual ~SharedAttention() = default;

  /// saved.att and saved.lse of this rank's tokens, from their saved.qkv.
  virtual void forward(const Ctx& ctx, const AttnSaved& saved) = 0;
  /// d.dqkv of this rank's tokens, from their d.datt.
  virtual void backward(const Ctx& ctx, const AttnGrads& d, const AttnSaved& saved) = 0;

  /// Counts its messages in the report, and gives its thread a row in the timeline.
  virtual void show(Log& log) = 0;
  /// Bytes that this rank sent in the last step.
  virtual int64_t sent(const Log& log) const = 0;

  /// How many pairs of a query and a key, over all heads, since this was last set to 0.
  int64_t pairs = 0;

 protected:
  /// Counts `count` pairs in each of `heads` heads, and the operations of their products.
  void count_pairs(const Ctx& ctx, bool back, int64_t heads, int64_t count) {
    pairs += heads * count;
    const auto cost = back ? cost::attention_piece_backward : cost::attention_piece_forward;
    // cost(B, Tq, Tk, NH, NKV, HS, pairs): Tq, Tk and NKV are 0, because only bytes need them.
    if (ctx.flops) *ctx.flops += cost(1, 0, 0, heads, 0, s.HS, count).flops;
  }

  const ContextShape s;
};

}  // namespace ladder
