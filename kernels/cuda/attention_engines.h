// Which engine computes the attention of which tensors.
#pragma once

#include <array>
#include <initializer_list>

#include "kernels/attention_rows.h"
#include "kernels/cuda/attention_fma.h"
#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/table.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {

/// together: queries, keys and values are in one tensor, qkv.
inline Heads heads_of(const AttentionPieceShape& s, bool together) {
  CHECK(s.Tq < 1 << 30 && s.Tk < 1 << 30, "attention over {} tokens", std::max(s.Tq, s.Tk));
  const int NH = static_cast<int>(s.NH), NKV = static_cast<int>(s.NKV), r = NH / NKV;
  return {.Tq = static_cast<int>(s.Tq),
          .Tk = static_cast<int>(s.Tk),
          .NH = NH,
          .HS = static_cast<int>(s.HS),
          .r = r,
          .q_row = together ? NH + 2 * NKV : NH,
          .q_group = together ? r + 2 : r,
          .kv_row = together ? NH + 2 * NKV : 2 * NKV,
          .kv_group = together ? r + 2 : 2,
          .k_first = together ? r : 0,
          .scale = 1.0f / std::sqrt(static_cast<float>(s.HS))};
}

/// The queries of a piece; a whole sequence is one run.
inline std::array<QueryRun, 2> runs_of(const AttentionPieceShape& s, const AttentionPlace& place) {
  std::array<QueryRun, 2> runs;
  for (size_t i = 0; i < runs.size(); ++i) {
    const TokenRun run = query_runs(place, s.Tq)[i];
    runs[i] = {static_cast<int>(run.row), static_cast<int>(run.tokens.size()),
               static_cast<int>(run.tokens.begin - place.keys)};
  }
  return runs;
}

/// A thread block for every E::kOwned of the tokens of every head.
template <class E>
Grid grid_of(int64_t B, int64_t heads, int64_t tokens) {
  return {.x = ceil_div(tokens, E::kOwned), .y = heads, .z = B};
}

/// Tensor cores are fed 16 bytes at a time.
inline void check_aligned(std::initializer_list<Tensor> tensors) {
  for (const Tensor& x : tensors)
    CHECK(reinterpret_cast<uintptr_t>(x.ptr) % 16 == 0,
          "attention over {}, not aligned to 16 bytes", to_string(x.shape));
}

/// Calls f(Type<E>{}). Tensor cores take 16-bit elements, and heads of 16, 32, 64 or 128 channels;
/// `MmaOf<T, HS>` is their engine. The others take what is left, up to 128 channels.
template <template <class, int> class MmaOf, class F>
void with_engine(Dtype dtype, int64_t HS, F&& f) {
  CHECK(HS <= kMaxHead, "cuda attends with heads of at most {} channels, not {}", kMaxHead, HS);
  dispatch(dtype, [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) == 2) {
      if (HS == 16) return f(Type<MmaOf<T, 16>>{});
      if (HS == 32) return f(Type<MmaOf<T, 32>>{});
      if (HS == 64) return f(Type<MmaOf<T, 64>>{});
      if (HS == 128) return f(Type<MmaOf<T, 128>>{});
    }
    if (HS <= 16) return f(Type<Fma<T, 16>>{});
    if (HS <= 32) return f(Type<Fma<T, 32>>{});
    if (HS <= 64) return f(Type<Fma<T, 64>>{});
    return f(Type<Fma<T, 128>>{});
  });
}

}  // namespace ladder::LADDER_CUDA
