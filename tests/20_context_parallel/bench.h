// What unit tests of chapter 20 share: a model with 512 tokens, and what a rank needs to compute.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "chapters/20_context_parallel/context_parallel.h"
#include "common/comm/run_ranks.h"
#include "common/random.h"

namespace ladder::test {

constexpr int64_t T = 512;

inline GptConfig model() {
  GptConfig gpt = preset("llama-nano");
  gpt.channels = 32;
  gpt.seq_len = T;
  return gpt;
}

/// Memory and kernels of one rank.
struct Bench {
  Arena arena;
  Ctx ctx;

  Bench() {
    ctx.kernels = &cpu_kernels();
    ctx.scratch =
        arena.alloc(Mem::Workspace, "scratch", Dtype::U8, {1, ctx.kernels->scratch_bytes});
  }
  Tensor empty(Shape shape) { return arena.alloc(Mem::Activation, "empty", Dtype::F32, shape); }
  Tensor random(Shape shape, const char* key) {
    const Tensor x = empty(shape);
    const Random random(1, key);
    for (int64_t i = 0; i < x.size(); ++i)
      x.data<float>()[i] = static_cast<float>(4 * random.uniform(static_cast<uint64_t>(i)) - 2);
    return x;
  }
  /// Rows of some tokens of x (1,T,N), or back.
  Tensor own(const LocalTokens& tokens, const Tensor& x) {
    const Tensor part = empty({1, tokens.size(), x.dim(2)});
    for (const int i : {0, 1})
      copy_elements(rows_of(part, tokens.rows(i)), rows_of(x, tokens.tokens(i)));
    return part;
  }
  static void put(const LocalTokens& tokens, const Tensor& x, const Tensor& part) {
    for (const int i : {0, 1})
      copy_elements(rows_of(x, tokens.tokens(i)), rows_of(part, tokens.rows(i)));
  }
};

inline std::vector<uint32_t> bits(const Tensor& x) {
  std::vector<uint32_t> all;
  for (int64_t i = 0; i < x.size(); ++i) all.push_back(std::bit_cast<uint32_t>(x.data<float>()[i]));
  return all;
}

}  // namespace ladder::test
