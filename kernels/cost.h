// What operations of kernels.h cost, in FP32 (no entry: cast, GELU to codes): the bytes that
// memory must move at least, and the floating-point operations. An operand counts once if it can
// stay in the caches until it is used again. The roofline of an operation is the slower of the two.
//
// A fused multiply-add counts as two operations. A division, a root and an exponential count as one
// each. The letters are those of kernels.h.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace ladder {

/// What one call of an operation must move and compute at least.
struct Cost {
  int64_t bytes;
  int64_t flops;
};

namespace cost {

constexpr int64_t kFloat = sizeof(float);

/// Reads a row of each table and writes one row. Without positions it moves a third less.
constexpr Cost embed_forward(int64_t B, int64_t T, int64_t C) {
  return {.bytes = kFloat * 3 * B * T * C, .flops = B * T * C};
}
/// Reads dout, writes the tables.
constexpr Cost embed_backward(int64_t B, int64_t T, int64_t C, int64_t V) {
  return {.bytes = kFloat * (B * T * C + (V + T) * C), .flops = 2 * B * T * C};
}

/// Mean (1), squared differences (3), the normalized row (4). RMSNorm has no mean and needs 4 in
/// all.
constexpr Cost norm_forward(int64_t B, int64_t T, int64_t C) {
  return {.bytes = kFloat * 2 * B * T * C, .flops = 8 * B * T * C};
}
/// xhat (2), g (1), the sums of both (3), the result (4).
constexpr Cost norm_backward_input(int64_t B, int64_t T, int64_t C) {
  return {.bytes = kFloat * 3 * B * T * C, .flops = 10 * B * T * C};
}
constexpr Cost norm_backward_weight(int64_t B, int64_t T, int64_t C) {
  return {.bytes = kFloat * 2 * B * T * C, .flops = 5 * B * T * C};
}

/// All three orientations. Of rows x K, N x K and rows x N, two are read and one is written.
constexpr Cost matmul(int64_t rows, int64_t N, int64_t K) {
  return {.bytes = kFloat * (rows * K + N * K + rows * N), .flops = 2 * rows * N * K};
}
constexpr Cost bias_backward(int64_t B, int64_t T, int64_t N) {
  return {.bytes = kFloat * B * T * N, .flops = B * T * N};
}

/// Seven operations for the argument and the gate, one exponential, one product.
constexpr Cost gelu_forward(int64_t n) { return {.bytes = kFloat * 2 * n, .flops = 9 * n}; }
constexpr Cost gelu_backward(int64_t n) { return {.bytes = kFloat * 3 * n, .flops = 18 * n}; }

/// Four operations for s, one product for silu, one for its product with u.
constexpr Cost swiglu_forward(int64_t n) { return {.bytes = kFloat * 3 * n, .flops = 6 * n}; }
/// s (4), its slope (4), silu (1), the two gradients (3).
constexpr Cost swiglu_backward(int64_t n) { return {.bytes = kFloat * 5 * n, .flops = 12 * n}; }

/// Reads logits, writes scores. Per score: the exponential and its share (4), a comparison for each
/// of the k choices, the losses (4).
constexpr Cost route_forward(int64_t B, int64_t T, int64_t E, int64_t k) {
  return {.bytes = kFloat * B * T * 2 * (E + k), .flops = B * T * E * (8 + k)};
}
/// Reads logits and scores, writes gradients. The softmax of the z-loss (4), two gradients (8).
constexpr Cost route_backward(int64_t B, int64_t T, int64_t E, int64_t k) {
  return {.bytes = kFloat * B * T * (3 * E + 2 * k), .flops = B * T * E * 12};
}
/// Reads the choices; writes the row of each choice, and the choice of each row.
constexpr Cost expert_rows(int64_t B, int64_t T, int64_t k) {
  return {.bytes = kFloat * 3 * B * T * k, .flops = 0};
}
constexpr Cost gather_rows(int64_t B, int64_t T, int64_t k, int64_t C) {
  return {.bytes = kFloat * B * T * (k + 1) * C, .flops = 0};
}
/// All three orientations. `rows` is the number of rows of all experts together.
constexpr Cost grouped_matmul(int64_t rows, int64_t E, int64_t N, int64_t K) {
  return {.bytes = kFloat * (rows * K + E * N * K + rows * N), .flops = 2 * rows * N * K};
}
constexpr Cost unpermute_forward(int64_t B, int64_t T, int64_t k, int64_t C) {
  return {.bytes = kFloat * B * T * (k + 1) * C, .flops = 2 * B * T * k * C};
}
/// Reads dout and the rows, writes the gradients of the rows.
constexpr Cost unpermute_backward(int64_t B, int64_t T, int64_t k, int64_t C) {
  return {.bytes = kFloat * B * T * (2 * k + 1) * C, .flops = 3 * B * T * k * C};
}

/// Reads and writes queries and keys. Per pair: two products and two fused multiply-adds.
constexpr Cost rope(int64_t B, int64_t T, int64_t NH, int64_t NKV, int64_t HS) {
  return {.bytes = kFloat * 2 * B * T * (NH + NKV) * HS, .flops = 3 * B * T * (NH + NKV) * HS};
}

/// Counts the pairs of a query and a key that it sees: T (T + 1) / 2 for each head. Per pair: two
/// products over HS channels, and five operations of the softmax. Bytes are those where NKV = NH.
constexpr Cost attention_forward(int64_t B, int64_t T, int64_t NH, int64_t HS) {
  return {.bytes = kFloat * 4 * B * T * NH * HS,
          .flops = B * NH * (T * (T + 1) / 2) * (4 * HS + 5)};
}
/// Five products per pair: the scores again, dP, dq, dk, dv.
constexpr Cost attention_backward(int64_t B, int64_t T, int64_t NH, int64_t HS) {
  return {.bytes = kFloat * 8 * B * T * NH * HS,
          .flops = B * NH * (T * (T + 1) / 2) * (10 * HS + 6)};
}

/// The same for a piece, in which each head has `pairs` pairs.
constexpr Cost attention_piece_forward(int64_t B, int64_t Tq, int64_t Tk, int64_t NH, int64_t NKV,
                                       int64_t HS, int64_t pairs) {
  return {.bytes = kFloat * B * 2 * (Tq * NH * (HS + 1) + Tk * NKV * HS),
          .flops = B * NH * pairs * (4 * HS + 5)};
}
constexpr Cost attention_piece_backward(int64_t B, int64_t Tq, int64_t Tk, int64_t NH, int64_t NKV,
                                        int64_t HS, int64_t pairs) {
  return {.bytes = kFloat * B * 4 * (Tq * NH * HS + Tk * NKV * HS),
          .flops = B * NH * pairs * (10 * HS + 6)};
}
/// m queries over the keys and values of n tokens, the last of which are theirs.
constexpr Cost attention_cached(int64_t m, int64_t n, int64_t NH, int64_t NKV, int64_t HS) {
  return {.bytes = kFloat * 2 * (m * NH * HS + n * NKV * HS),
          .flops = NH * (m * n - m * (m - 1) / 2) * (4 * HS + 5)};
}
/// Per query and head: two factors (6), and two products and a sum for each column and for l.
constexpr Cost attention_merge(int64_t B, int64_t T, int64_t NH, int64_t HS) {
  return {.bytes = kFloat * 3 * B * T * NH * (HS + 2), .flops = B * T * NH * (3 * HS + 9)};
}
constexpr Cost attention_finish(int64_t B, int64_t T, int64_t NH, int64_t HS) {
  return {.bytes = kFloat * B * T * NH * (2 * HS + 3), .flops = B * T * NH * (HS + 3)};
}
constexpr Cost copy_columns(int64_t rows, int64_t count) {
  return {.bytes = kFloat * 2 * rows * count, .flops = 0};
}

constexpr Cost residual_forward(int64_t rows, int64_t C) {
  return {.bytes = kFloat * 3 * rows * C, .flops = 2 * rows * C};
}
constexpr Cost add(int64_t n) { return {.bytes = kFloat * 3 * n, .flops = n}; }
constexpr Cost scale(int64_t n) { return {.bytes = kFloat * 2 * n, .flops = n}; }

/// A row stays in the cache for maximum, sum and gradient. So it is read once and written once.
constexpr Cost cross_entropy(int64_t B, int64_t T, int64_t V) {
  return {.bytes = kFloat * 2 * B * T * V, .flops = 8 * B * T * V};
}
/// Each of the three parts reads the row: the maximum (1), the sum of exponentials (3), the
/// gradient (4).
constexpr Cost softmax_max(int64_t B, int64_t T, int64_t V) {
  return {.bytes = kFloat * B * T * V, .flops = B * T * V};
}
constexpr Cost softmax_sum(int64_t B, int64_t T, int64_t V) {
  return {.bytes = kFloat * B * T * V, .flops = 3 * B * T * V};
}
constexpr Cost softmax_loss(int64_t B, int64_t T, int64_t V) {
  return {.bytes = kFloat * 2 * B * T * V, .flops = 4 * B * T * V};
}

constexpr Cost squared_norm(int64_t n) { return {.bytes = kFloat * n, .flops = 2 * n}; }
constexpr Cost adaptive_clip(int64_t n) { return {.bytes = kFloat * 2 * n, .flops = n}; }

/// Reads and writes weight and velocity, reads the gradient.
constexpr Cost sgd_update(int64_t n) { return {.bytes = kFloat * 5 * n, .flops = 4 * n}; }
constexpr Cost adamw_update(int64_t n) { return {.bytes = kFloat * 7 * n, .flops = 15 * n}; }
constexpr Cost lion_update(int64_t n) { return {.bytes = kFloat * 5 * n, .flops = 11 * n}; }
/// Reads the gradient three times: for the moments, for the length of the update, for the update.
constexpr Cost adafactor_update(int64_t n) { return {.bytes = kFloat * 5 * n, .flops = 18 * n}; }
/// Reads and writes two bytes of codes per element, and a scale per kQuantBlock elements and state.
constexpr Cost adamw8bit_update(int64_t n) {
  return {.bytes = (kFloat * 3 + 4) * n + kFloat * 4 * n / kQuantBlock, .flops = 19 * n};
}

}  // namespace cost
}  // namespace ladder
