// What each operation of kernels.h costs in FP32, but for cast: bytes that memory must move at
// least (each operand once, where it can stay in the caches until it is used again) and
// floating-point operations. The roofline of an operation is the slower of both.
//
// A fused multiply-add counts as two operations; so does nothing else: a division, a root, an
// exponential count as one each. Letters as in kernels.h.
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

/// A row of each table read, one written. Without positions a third less.
constexpr Cost embed_forward(int64_t B, int64_t T, int64_t C) {
  return {.bytes = kFloat * 3 * B * T * C, .flops = B * T * C};
}
/// dout read, the tables written.
constexpr Cost embed_backward(int64_t B, int64_t T, int64_t C, int64_t V) {
  return {.bytes = kFloat * (B * T * C + (V + T) * C), .flops = 2 * B * T * C};
}

/// Mean (1), squared differences (3), the normalised row (4). RMSNorm has no mean: 4 in all.
constexpr Cost norm_forward(int64_t B, int64_t T, int64_t C) {
  return {.bytes = kFloat * 2 * B * T * C, .flops = 8 * B * T * C};
}
/// xhat (2) and g (1), their sums (3), the result (4).
constexpr Cost norm_backward_input(int64_t B, int64_t T, int64_t C) {
  return {.bytes = kFloat * 3 * B * T * C, .flops = 10 * B * T * C};
}
constexpr Cost norm_backward_weight(int64_t B, int64_t T, int64_t C) {
  return {.bytes = kFloat * 2 * B * T * C, .flops = 5 * B * T * C};
}

/// All three orientations: rows x K, N x K and rows x N, of which two are read, one written.
constexpr Cost matmul(int64_t rows, int64_t N, int64_t K) {
  return {.bytes = kFloat * (rows * K + N * K + rows * N), .flops = 2 * rows * N * K};
}
constexpr Cost bias_backward(int64_t B, int64_t T, int64_t N) {
  return {.bytes = kFloat * B * T * N, .flops = B * T * N};
}

/// Seven for the argument and the gate, one exponential, one product.
constexpr Cost gelu_forward(int64_t n) { return {.bytes = kFloat * 2 * n, .flops = 9 * n}; }
constexpr Cost gelu_backward(int64_t n) { return {.bytes = kFloat * 3 * n, .flops = 18 * n}; }

/// Four for the gate's s, one product each for silu and for what it lets through.
constexpr Cost swiglu_forward(int64_t n) { return {.bytes = kFloat * 3 * n, .flops = 6 * n}; }
/// s (4), its slope (4), silu (1), the two gradients (3).
constexpr Cost swiglu_backward(int64_t n) { return {.bytes = kFloat * 5 * n, .flops = 12 * n}; }

/// Logits read, scores written; of a score the exponential and its share (4), of the k choices a
/// comparison each, of the losses (4).
constexpr Cost route_forward(int64_t B, int64_t T, int64_t E, int64_t k) {
  return {.bytes = kFloat * B * T * 2 * (E + k), .flops = B * T * E * (8 + k)};
}
/// Logits and scores read, gradients written; the softmax of the z-loss (4), two sums (6).
constexpr Cost route_backward(int64_t B, int64_t T, int64_t E, int64_t k) {
  return {.bytes = kFloat * B * T * (3 * E + 2 * k), .flops = B * T * E * 12};
}
/// The choices read, a row each way written.
constexpr Cost expert_rows(int64_t B, int64_t T, int64_t k) {
  return {.bytes = kFloat * 3 * B * T * k, .flops = 0};
}
constexpr Cost gather_rows(int64_t B, int64_t T, int64_t k, int64_t C) {
  return {.bytes = kFloat * B * T * (k + 1) * C, .flops = 0};
}
/// All three orientations, over `rows` rows of all experts.
constexpr Cost grouped_matmul(int64_t rows, int64_t E, int64_t N, int64_t K) {
  return {.bytes = kFloat * (rows * K + E * N * K + rows * N), .flops = 2 * rows * N * K};
}
constexpr Cost combine_forward(int64_t B, int64_t T, int64_t k, int64_t C) {
  return {.bytes = kFloat * B * T * (k + 1) * C, .flops = 2 * B * T * k * C};
}
/// dout and the rows read, their gradients written.
constexpr Cost combine_backward(int64_t B, int64_t T, int64_t k, int64_t C) {
  return {.bytes = kFloat * B * T * (2 * k + 1) * C, .flops = 3 * B * T * k * C};
}

/// Queries and keys read and written; of a pair two products and two fused multiply-adds.
constexpr Cost rope(int64_t B, int64_t T, int64_t NH, int64_t NKV, int64_t HS) {
  return {.bytes = kFloat * 2 * B * T * (NH + NKV) * HS, .flops = 3 * B * T * (NH + NKV) * HS};
}

/// Pairs of a query and a key that it sees: T (T + 1) / 2 a head. Two products of HS each, and
/// five operations of the softmax.
constexpr Cost attention_forward(int64_t B, int64_t T, int64_t NH, int64_t HS) {
  return {.bytes = kFloat * 4 * B * T * NH * HS,
          .flops = B * NH * (T * (T + 1) / 2) * (4 * HS + 5)};
}
/// Five products a pair: the scores again, dP, dq, dk, dv.
constexpr Cost attention_backward(int64_t B, int64_t T, int64_t NH, int64_t HS) {
  return {.bytes = kFloat * 8 * B * T * NH * HS,
          .flops = B * NH * (T * (T + 1) / 2) * (10 * HS + 6)};
}

/// The same of a piece, of which `pairs` pairs of a head count.
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
/// Two factors (6) for a query and head; two products and a sum a column, and for l.
constexpr Cost attention_merge(int64_t B, int64_t T, int64_t NH, int64_t HS) {
  return {.bytes = kFloat * 3 * B * T * NH * (HS + 2), .flops = B * T * NH * (3 * HS + 9)};
}
constexpr Cost attention_finish(int64_t B, int64_t T, int64_t NH, int64_t HS) {
  return {.bytes = kFloat * 2 * B * T * NH * (HS + 1), .flops = B * T * NH * (HS + 3)};
}
constexpr Cost copy_columns(int64_t rows, int64_t count) {
  return {.bytes = kFloat * 2 * rows * count, .flops = 0};
}

constexpr Cost residual_forward(int64_t rows, int64_t C) {
  return {.bytes = kFloat * 3 * rows * C, .flops = 2 * rows * C};
}
constexpr Cost add(int64_t n) { return {.bytes = kFloat * 3 * n, .flops = n}; }
constexpr Cost scale(int64_t n) { return {.bytes = kFloat * 2 * n, .flops = n}; }

/// A row stays in cache between maximum, sum and gradient: read once, written once.
constexpr Cost cross_entropy(int64_t B, int64_t T, int64_t V) {
  return {.bytes = kFloat * 2 * B * T * V, .flops = 8 * B * T * V};
}
/// Its parts read the row each: the maximum (1), the sum of exponentials (3), the gradient (4).
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

/// Weight and velocity read and written, gradient read.
constexpr Cost sgd_update(int64_t n) { return {.bytes = kFloat * 5 * n, .flops = 4 * n}; }
constexpr Cost adamw_update(int64_t n) { return {.bytes = kFloat * 7 * n, .flops = 15 * n}; }
constexpr Cost lion_update(int64_t n) { return {.bytes = kFloat * 5 * n, .flops = 11 * n}; }
/// The gradient is read for the moments, for the length of the update, and for the update.
constexpr Cost adafactor_update(int64_t n) { return {.bytes = kFloat * 5 * n, .flops = 18 * n}; }
/// Two bytes of codes read and written an element; the scales are one in kQuantBlock.
constexpr Cost adamw8bit_update(int64_t n) {
  return {.bytes = (kFloat * 3 + 4) * n + kFloat * 4 * n / kQuantBlock, .flops = 19 * n};
}

}  // namespace cost
}  // namespace ladder
