// What the tests of experts share: a router's tensors, choices of experts, rows.
#pragma once

#include <vector>

#include "tests/kernels/testing.h"

namespace ladder::test {

/// What a router makes of logits.
struct Routed {
  Tensor expert, weight, scores, load, losses;
};

/// For logits (B,T,E), `takes` experts a token.
inline Routed route(Sandbox& box, const Tensor& logits, int64_t takes, const Tensor& bias = {},
                    const RouteRule& rule = {}) {
  const int64_t B = logits.dim(0), T = logits.dim(1), E = logits.dim(2);
  const Dtype dtype = logits.dtype;
  const Routed r{.expert = box.empty(Dtype::I32, {B, T, takes}),
                 .weight = box.empty(dtype, {B, T, takes}),
                 .scores = box.empty(dtype, {B, T, E}),
                 .load = box.empty(Dtype::I32, {B, E}),
                 .losses = box.empty(dtype, {2, B})};
  box.kernels().route_forward(box.ctx(), r.expert, r.weight, r.scores, r.load, r.losses, logits,
                              bias, rule);
  return r;
}

/// Room for the rows of a token's experts, of all tokens.
inline ExpertRows room_for(Sandbox& box, const Tensor& expert, int64_t E) {
  return {.offsets = box.empty(Dtype::I32, {E + 1}),
          .row = box.empty(Dtype::I32, expert.shape),
          .from = box.empty(Dtype::I32, {expert.size()})};
}
inline ExpertRows sorted(Sandbox& box, const Tensor& expert, int64_t E, int64_t capacity = 0) {
  const ExpertRows rows = room_for(box, expert, E);
  box.kernels().expert_rows(box.ctx(), rows, expert, capacity);
  return rows;
}
inline int64_t used(const ExpertRows& rows) {
  return rows.offsets.data<int32_t>()[rows.offsets.size() - 1];
}

/// expert (B,T,takes): `takes` of E at random, ascending.
inline Tensor choices(Sandbox& box, int64_t B, int64_t T, int64_t takes, int64_t E) {
  const Tensor expert = box.empty(Dtype::I32, {B, T, takes});
  const Tensor draws = box.tokens({B, T, takes}, 1 << 20);
  for (int64_t t = 0; t < B * T; ++t) {
    int32_t e = 0;
    for (int64_t left = takes; left > 0; ++e)  // expert e is taken with probability left / (E - e)
      if (draws.data<int32_t>()[t * takes + takes - left] * 7 % 1009 % (E - e) < left ||
          E - e == left)
        expert.data<int32_t>()[t * takes + takes - left--] = e;
  }
  return expert;
}

}  // namespace ladder::test
