// Checks the operands of every operation, in one place for all tables. What they must be is
// declared in kernels/operations.inc.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/tensor.h"

namespace ladder {

/// The name of an operation.
enum class Op : uint8_t {
#define LADDER_OPERATION(op, operands) op,
#include "kernels/operations.inc"
};

/// The extents of one call, by the letters of kernels.h. A letter is 0 if the operation does not
/// have it, or if only a null operand has it. R is also the product of `..`.
struct Extents {
  int64_t B = 0, T = 0, C = 0, V = 0, P = 0;
  int64_t R = 0, N = 0, K = 0, F = 0;
  int64_t NH = 0, NKV = 0, HS = 0, Tq = 0, Tk = 0;
  int64_t E = 0, k = 0, M = 0;
  int64_t G = 0, D = 0, Q = 0;
};

/// One call's arguments, as check_shapes takes them.
struct Arguments {
  std::array<const Tensor*, 9> tensors{};
  std::array<int64_t, 3> numbers{};
  int tensor_count = 0, number_count = 0;
  const Ctx* ctx = nullptr;
  const AttentionPositions* place = nullptr;

  void add(const Tensor& x) { tensors[static_cast<size_t>(tensor_count++)] = &x; }
  void add(const ExpertRows& rows) {
    add(rows.offsets);
    add(rows.row);
    add(rows.from);
  }
  void add(std::integral auto n) { numbers[static_cast<size_t>(number_count++)] = n; }
  void add(const Ctx& c) { ctx = &c; }
  void add(const AttentionPositions& p) { place = &p; }
  void add(const CachedPlace& p) {
    add(p.first);
    add(p.T);
  }
};

Extents check_shapes(Op op, const Arguments& given);

/// Takes the operands of an operation in the order of kernels.h, and the numbers among them. Losses
/// take the Ctx first, and pieces of attention the AttentionPositions last. Returns the extents.
/// @throws CheckError if a dtype or an extent is not what the operation declares
template <class... Args>
Extents check_shapes(Op op, const Args&... args) {
  Arguments all;
  (all.add(args), ...);
  return check_shapes(op, all);
}

/// Tokens and targets come from data, so all are checked before the first is used as an index.
inline void check_token(int32_t token, int64_t V) {
  CHECK(token >= 0 && token < V, "token {} of a vocabulary of {}", token, V);
}

/// Each token must be a row of this rank, or kElsewhere.
inline void check_tokens(const Tensor& tokens, int64_t V) {
  const int32_t* token = tokens.data<int32_t>();
  for (int64_t i = 0; i < tokens.size(); ++i)
    if (token[i] != kElsewhere) check_token(token[i], V);
}

/// Each target must be a column, or kIgnore, or, if `elsewhere`, kElsewhere.
inline void check_targets(const Tensor& targets, int64_t vocab, bool elsewhere) {
  const int32_t* target = targets.data<int32_t>();
  for (int64_t i = 0; i < targets.size(); ++i)
    if (target[i] != kIgnore && !(elsewhere && target[i] == kElsewhere))
      check_token(target[i], vocab);
}

/// Whether a token or a target is a row of this rank: neither kIgnore nor kElsewhere.
inline bool is_here(int32_t index) { return index != kIgnore && index != kElsewhere; }

}  // namespace ladder
