// Turns tensors into the arguments of attention's kernels.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <numbers>

#include "kernels/attention_rows.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/grid.h"
#include "kernels/documents.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {

/// together: queries, keys and values are in one tensor, qkv. `all`: the sequences of the call,
/// which are needed only if they are documents
inline Heads heads_of(const Extents& s, bool together, const Sequences& all = {}) {
  CHECK(s.Tq < 1 << 30 && s.Tk < 1 << 30, "attention over {} tokens", std::max(s.Tq, s.Tk));
  const int NH = static_cast<int>(s.NH), NKV = static_cast<int>(s.NKV), r = NH / NKV;
  const double scale = 1 / std::sqrt(static_cast<double>(s.HS));
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
          .scale = static_cast<float>(scale),
          .unit = static_cast<float>(scale / std::numbers::ln2),
          .all = all};
}

/// Rows of x that belong to no document become 0, as they attend to nothing. x (rows,width), in
/// words of 16 bits; lse of a row of padding has NH numbers. A block takes a row.
static __global__ void clear_padding(uint16_t* x, const int32_t* position, int64_t width) {
  if (position[blockIdx.x] != kPadding) return;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) x[blockIdx.x * width + i] = 0;
}
inline void clear_padding_of(const Ctx& ctx, std::initializer_list<Tensor> outputs) {
  const Tensor& position = ctx.documents.position;
  for (const Tensor& x : outputs) {
    if (!ctx.documents.borders) return;
    launch(ctx, clear_padding, {.x = position.size()}, 128, 0, static_cast<uint16_t*>(x.ptr),
           device_data<int32_t>(position), x.bytes() / 2 / std::max<int64_t>(position.size(), 1));
  }
}

/// The queries of a piece. A whole sequence is one run.
inline std::array<QueryRun, 2> runs_of(const Extents& s, const AttentionPositions& place) {
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

/// Calls f with all sequences, or with the documents of some bundles at a time: `most` documents,
/// or those of one bundle.
template <class F>
void in_parts(const Sequences& all, int64_t most, F&& f) {
  if (!all.documents) return f(all);
  const int64_t step = std::max<int64_t>(most / all.used, 1) * all.used;
  for (int64_t first = 0; first < all.count; first += step) {
    Sequences part = all;
    part.documents += 2 * all.document(first);
    part.count = std::min(step, all.count - first);
    f(part);
  }
}

}  // namespace ladder::LADDER_CUDA
